// Captured tables on the CPU, where a lane of the test makes the solve anew at each start: the same
// answers as the run that serves there, and what becomes of lanes, rows and generations.
#include "core/engine/captured/table_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/captured/capture_lanes.h"
#include "core/engine/captured/captured_work.h"
#include "core/engine/captured/table_graphs.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/engine/readable/readable_run.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/captured/table_fixture.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

// Counts the starts of all that was captured.
class ReplayedLane final : public CaptureLane {
 public:
  explicit ReplayedLane(int* starts) : starts_(starts) {}
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override {
    return std::make_unique<Replayed>(starts_, work);
  }

 private:
  class Replayed final : public CapturedWork {
   public:
    Replayed(int* starts, std::function<void()> work) : starts_(starts), work_(std::move(work)) {}
    void Start() override {
      ++*starts_;
      work_();
    }

   private:
    int* const starts_;
    const std::function<void()> work_;
  };
  int* const starts_;
};

class DeafLane final : public CaptureLane {
 public:
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>&) override {
    TORCH_CHECK(false, "it waits for the device");
  }
};

class TableRunTest : public testing::Test {
 protected:
  StreamLease Stream() const {
    return std::make_shared<const c10::Stream>(c10::Stream::DEFAULT, at::Device(at::kCPU));
  }

  void Capture(const BatchSpec& spec, int64_t rows) {
    for (const int steps : spec.correction->spec().steps) {
      EXPECT_TRUE(graphs_.Capture(spec, steps, rows, Stream()));
    }
  }

  std::unique_ptr<hyperserve::Run> Start(const BatchSpec& spec, int64_t rows) {
    return MakeTableRun(spec, graphs_.Take(spec, rows).value());
  }

  // Everything but the bucket.
  static std::string WithoutBucket(const std::string& text) {
    return text.substr(0, text.find_last_not_of("0123456789") + 1);
  }

  // In one run, by a start for each number of steps; and each alone by the readable engine.
  void ExpectAsReadable(const PlannedSolve& solve, const std::vector<TableRowsAsked>& asked) {
    BatchSpec spec = SpecOf(solve, asked[0].rows.dtype);
    spec.want_depth = true;
    Capture(spec, 16);
    const auto run = Start(spec, 16);
    const std::vector<std::string> found = SolvedBy(*run, asked, solve.condition);
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto readable = MakeReadableRun(spec, Stream(), asked[i].rows.shape[0]);
      const std::string wanted = SolvedBy(*readable, {asked[i]}, solve.condition)[0];
      EXPECT_TRUE(WithoutBucket(found[i]) == WithoutBucket(wanted)) << i;
    }
  }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  int starts_ = 0;
  CaptureLanes lanes_{at::kCPU, StreamPriority::kLeast, [this](const c10::Stream&) {
                        return std::make_unique<ReplayedLane>(&starts_);
                      }};
  TableGraphs graphs_{&lanes_};
};

TEST_F(TableRunTest, FlowsAsTheReadableEngine) {
  const std::vector<TableRowsAsked> asked = {{NormalRows(3, {2}, 3), 3},
                                             {NormalRows(1, {2}, 4), 1},
                                             {NormalRows(2, {2}, 5), 3},
                                             {NormalRows(2, {2}, 6), 0}};
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
      starts_ = 0;
      ExpectAsReadable(ByTable(flow_, RandomTables(*flow_, kind, 2), tier), asked);
      EXPECT_EQ(starts_, 3) << "one for each number of evaluations";
    }
  }
}

TEST_F(TableRunTest, WhoAsksForNoDistanceGetsNone) {
  PlannedSolve solve = ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2));
  solve.want_distance = false;
  ExpectAsReadable(solve, {{NormalRows(3, {2}, 3), 3}, {NormalRows(3, {2}, 4), 1}});
}

TEST_F(TableRunTest, ARowAloneIsSolvedWithoutADistanceThatItDoesNotAskFor) {
  PlannedSolve solve = ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2));
  Capture(SpecOf(solve), 1);
  for (const bool wish : {false, true}) {
    solve.want_distance = wish;
    const BatchSpec spec = SpecOf(solve);
    {
      const auto lease = graphs_.Take(spec, 1);
      ASSERT_EQ(lease->graphs.size(), 3u);
      for (const auto& [steps, graph] : lease->graphs) {
        EXPECT_EQ(graph->places->ends.squares.defined(), wish) << steps;
      }
    }
    const TableRowsAsked asked{NormalRows(1, {2}, 3), 3};
    const auto readable = MakeReadableRun(spec, Stream(), 1);
    EXPECT_EQ(WithoutBucket(SolvedBy(*Start(spec, 1), {asked})[0]),
              WithoutBucket(SolvedBy(*readable, {asked})[0]));
  }
}

TEST_F(TableRunTest, ConditionsAsTheReadableEngine) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  PlannedSolve solve = ByTable(model, RandomTables(*model, Coefficients::kMap, 2));
  const HostTensor condition = NormalRows(3, {3}, 7);
  solve.condition = View(condition);
  ExpectAsReadable(solve, {{NormalRows(3, {2}, 3), 3}, {NormalRows(3, {2}, 4), 1}});
}

TEST_F(TableRunTest, ImagesAsTheReadableEngine) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  HostTensor bytes = HostTensor::Zeros(Dtype::kU8, {2, 1, 12, 12});
  for (size_t i = 0; i < bytes.bytes.size(); ++i) bytes.bytes[i] = std::byte(i * 37 % 256);
  const PlannedSolve solve = ByTable(model, RandomTables(*model, Coefficients::kMap, 2));
  ExpectAsReadable(solve, {{bytes, 1}, {bytes, 3}});
}

// A row that is not finite ends as the readable engine ends it, and touches no other.
TEST_F(TableRunTest, RowsThatFail) {
  HostTensor rows = NormalRows(5, {2}, 3);
  rows.as<double>()[2] = 1.7e308;
  rows.as<double>()[5] = std::numeric_limits<double>::infinity();
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    const auto tables = RandomTables(*flow_, Coefficients::kMap, 2);
    ExpectAsReadable(ByTable(flow_, tables, tier), {{rows, 3}, {NormalRows(2, {2}, 4), 1}});
  }
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  HostTensor images = NormalRows(2, {1, 12, 12}, 3);
  images.as<double>()[7] = std::numeric_limits<double>::quiet_NaN();
  ExpectAsReadable(ByTable(model, RandomTables(*model, Coefficients::kChannel, 2), Tier::kDouble),
                   {{images, 3}});
}

TEST_F(TableRunTest, AClassicalTable) {
  const PlannedSolve solve{.model = flow_,
                           .plan = Fixed(Method::kAb2, 4),
                           .entry = Entry::kState,
                           .direction = Direction::kDataToNoise};
  const BatchSpec spec = SpecOf(solve);
  EXPECT_TRUE(graphs_.Capture(spec, 4, 16, Stream()));
  const TableRowsAsked asked{NormalRows(8, {2}, 3), 4};
  const auto readable = MakeReadableRun(spec, Stream(), 8);
  EXPECT_TRUE(WithoutBucket(SolvedBy(*Start(spec, 16), {asked})[0]) ==
              WithoutBucket(SolvedBy(*readable, {asked})[0]));
}

TEST_F(TableRunTest, ATableThatWasNotCapturedIsSolvedAllTheSame) {
  const BatchSpec spec = SpecOf(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2)));
  EXPECT_TRUE(graphs_.Capture(spec, 1, 16, Stream()));
  const TableRowsAsked asked{NormalRows(4, {2}, 3), 3};
  const std::string by_one = SolvedBy(*Start(spec, 16), {asked})[0];
  EXPECT_EQ(starts_, 0);
  EXPECT_TRUE(graphs_.Capture(spec, 3, 16, Stream()));
  EXPECT_TRUE(SolvedBy(*Start(spec, 16), {asked})[0] == by_one);
  EXPECT_EQ(starts_, 1);
}

TEST_F(TableRunTest, ARunGoesOn) {
  const BatchSpec spec = SpecOf(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2)));
  Capture(spec, 16);
  const auto run = Start(spec, 16);
  const TableRowsAsked asked{NormalRows(4, {2}, 3), 3}, other{NormalRows(13, {2}, 4), 3};
  const std::string alone = SolvedBy(*run, {asked})[0];
  const Ticket dropped = run->Admit(SegmentOf(asked)).value();
  EXPECT_EQ(run->room(), 12);
  EXPECT_EQ(run->Admit(SegmentOf(other)).status().code(), absl::StatusCode::kResourceExhausted);
  run->Drop(dropped);
  EXPECT_EQ(run->room(), 16);
  EXPECT_TRUE(run->Admit(SegmentOf(other)).ok());
  starts_ = 0;
  EXPECT_EQ(run->Advance(1, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(starts_, 0);
  EXPECT_TRUE(SolvedBy(*run, {asked})[0] == alone);
}

// Between two starts of one Advance too.
TEST_F(TableRunTest, CancellationIsNoticedBetweenStarts) {
  const BatchSpec spec = SpecOf(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2)));
  Capture(spec, 16);
  const auto run = Start(spec, 16);
  const HostTensor rows = NormalRows(4, {2}, 3);
  const TableRowsAsked one{rows, 1}, other{rows, 3};
  EXPECT_TRUE(run->Admit(SegmentOf(one)).ok() && run->Admit(SegmentOf(other)).ok());
  int asked = 0;
  EXPECT_EQ(run->Advance(1, [&] { return ++asked > 1; }).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(starts_, 1);
  EXPECT_TRUE(run->TakeFinished().value().empty());
}

TEST_F(TableRunTest, AsManyRunsAsLanes) {
  const BatchSpec spec = SpecOf(ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2)));
  Capture(spec, 16);
  auto first = Start(spec, 16), second = Start(spec, 16);
  EXPECT_FALSE(graphs_.Take(spec, 16).has_value());
  first.reset();
  EXPECT_TRUE(graphs_.Take(spec, 16).has_value());
}

TEST_F(TableRunTest, WhoHasNoCapturedTableSaysWhy) {
  const PlannedSolve solve = ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2));
  BatchSpec spec = SpecOf(solve);
  const auto why = [&](const BatchSpec& of, int64_t rows) {
    return std::string(graphs_.Supports(of, rows).message());
  };
  EXPECT_THAT(why(spec, 8), HasSubstr("no table of 16 rows was captured"));
  Capture(spec, 16);
  EXPECT_TRUE(graphs_.Supports(spec, 5).ok());
  EXPECT_THAT(why(spec, 17), HasSubstr("no table of 64 rows was captured"));
  EXPECT_FALSE(graphs_.Capture(spec, 1, 7, Stream())) << "twice";
  EXPECT_FALSE(graphs_.Capture(spec, 1, int64_t{1} << 20, Stream())) << "too large";
  spec.want_distance = false;
  EXPECT_TRUE(graphs_.Supports(spec, 8).ok()) << "what was captured has the distance beside";
  spec.log_density = LogDensity::kStepMap;
  EXPECT_THAT(why(spec, 8), HasSubstr("are not captured"));
  EXPECT_FALSE(graphs_.Capture(spec, 1, 16, Stream()));

  CaptureLanes deaf(at::kCPU, StreamPriority::kLeast,
                    [](const c10::Stream&) { return std::make_unique<DeafLane>(); });
  TableGraphs none(&deaf);
  EXPECT_TRUE(none.Capture(SpecOf(solve), 1, 8, Stream()));
  EXPECT_THAT(std::string(none.Supports(SpecOf(solve), 8).message()),
              HasSubstr("it waits for the device"));
}

// Tables belong to a generation: the next one has none until its own warm-up, and they go with it.
TEST_F(TableRunTest, TablesAreThoseOfAGeneration) {
  PlannedSolve solve = ByTable(flow_, RandomTables(*flow_, Coefficients::kMap, 2));
  Capture(SpecOf(solve), 8);
  const std::weak_ptr<const Hypersolver> old = solve.correction;
  solve.correction = RandomTables(*flow_, Coefficients::kMap, 3);
  EXPECT_TRUE(old.expired()) << "what was captured keeps no generation";
  EXPECT_FALSE(graphs_.Supports(SpecOf(solve), 8).ok());
  ExpectAsReadable(solve, {{NormalRows(4, {2}, 3), 3}});
}

}  // namespace
}  // namespace hyperserve
