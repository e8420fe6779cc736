// Promise 1 for rows that join and leave: a segment's answer and counts are those that it gets
// alone, whatever else the run holds. On CUDA, "alone" means in a run of the same bucket.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

constexpr int64_t kBucketRows = 32;
constexpr int64_t kSegmentRowsMax = 4;

// Segments of one spec, each with the answer that it gets alone.
struct Family {
  BatchSpec spec;
  std::vector<HostTensor> data;
  std::deque<HostTensor> conditions;  // segments point to them
  std::vector<Segment> segments;
  std::vector<std::string> alone;
};

class RunJoinsTest : public EngineTest {
 protected:
  std::unique_ptr<hyperserve::Run> Start(const BatchSpec& spec) {
    return std::move(runtime_->StartRun(spec, kBucketRows).value().run);
  }

  Family MakeFamily(const PlannedSolve& solve, const Shape& row,
                    const std::vector<StepControl>& controls) {
    Family family{.spec = SpecOf(solve)};
    for (size_t i = 0; i < 3 * controls.size(); ++i) {
      const int64_t rows = 1 + static_cast<int64_t>(i) % kSegmentRowsMax;
      family.data.push_back(NormalRows(rows, row, i, i % 5 == 4 ? 20.0 : 1.0));
      family.segments.push_back({.rows = rows,
                                 .seed = i,
                                 .first_row = 100 * i,
                                 .control = controls[i % controls.size()]});
    }
    for (size_t i = 0; i < family.segments.size(); ++i) {
      Segment& segment = family.segments[i];
      if (solve.entry != Entry::kNoise) segment.data = View(family.data[i]);
      if (const Shape& features = solve.model->spec().condition; !features.empty()) {
        // Every third segment has one condition for all of its rows.
        family.conditions.push_back(NormalRows(i % 3 == 0 ? 1 : segment.rows, features, 77 + i));
        segment.condition = View(family.conditions.back());
      }
      const auto run = Start(family.spec);
      EXPECT_TRUE(run->Admit(segment).ok());
      EXPECT_TRUE(run->Advance(1'000'000, nullptr).value());
      family.alone.push_back(Text(run->TakeFinished().value().at(0).rows));
    }
    return family;
  }

  // One composition: segments are admitted at random moments, some are dropped.
  void Compose(const Family& family, uint32_t seed, int64_t& compared) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const auto run = Start(family.spec);
    std::map<Ticket, size_t> asked;
    size_t admissions = 3 + below(6);
    for (bool done = true; admissions > 0 || !done;) {
      const size_t next = below(family.segments.size());
      if (admissions > 0 && (done || random() % 3 == 0) &&
          run->room() >= family.segments[next].rows) {
        asked[run->Admit(family.segments[next]).value()] = next;
        --admissions;
      }
      if (!asked.empty() && random() % 12 == 0) {
        const auto dropped = std::next(asked.begin(), static_cast<long>(below(asked.size())));
        run->Drop(dropped->first);
        asked.erase(dropped);
      }
      done = run->Advance(1 + static_cast<int64_t>(below(6)), nullptr).value();
      const std::vector<SolvedSegment> all = run->TakeFinished().value();
      for (const SolvedSegment& finished : all) {
        ASSERT_TRUE(asked.contains(finished.ticket)) << "seed " << seed;
        ASSERT_TRUE(Text(finished.rows) == family.alone[asked[finished.ticket]]) << "seed " << seed;
        asked.erase(finished.ticket);
        ++compared;
      }
    }
    EXPECT_TRUE(asked.empty()) << asked.size() << " segments were lost, seed " << seed;
  }

  void ExpectAsAlone(const Family& family, uint32_t compositions) {
    int64_t compared = 0;
    for (uint32_t seed = 0; seed < compositions; ++seed) {
      ASSERT_NO_FATAL_FAILURE(Compose(family, seed, compared));
    }
    EXPECT_GT(compared, compositions);
    RecordProperty("segments_compared", static_cast<int>(compared));
  }

  // A GPU takes ten times as long for nets as small as these.
  uint32_t compositions(uint32_t on_cpus) const { return on_cpu() ? on_cpus : on_cpus / 20; }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, 2);
  const std::vector<StepControl> steps_ = {FixedSteps{1}, FixedSteps{2}, FixedSteps{5}};
  const std::vector<StepControl> tolerances_ = {
      ErrorControl{.rtol = 1e-2, .atol = 1e-2}, ErrorControl{.rtol = 1e-4, .atol = 1e-5},
      ErrorControl{.rtol = 1e-5, .atol = 1e-5, .max_steps = 3}};
};

TEST_P(RunJoinsTest, FixedStepsThatSaveStates) {
  const PlannedSolve solve{.model = flow_,
                           .plan = Fixed(Method::kRk4, 1),
                           .entry = Entry::kState,
                           .save_at = {0.0, 0.3, 0.5, 1.0}};
  ExpectAsAlone(MakeFamily(solve, {2}, steps_), compositions(2000));
}

// Neither saved states nor densities: on CUDA these stand in slots, at different steps of different
// numbers of steps.
TEST_P(RunJoinsTest, FixedSteps) {
  const PlannedSolve classical{
      .model = flow_, .plan = Fixed(Method::kRk4, 1), .entry = Entry::kState};
  ExpectAsAlone(MakeFamily(classical, {2}, steps_), compositions(1000));
  const PlannedSolve corrected{.model = flow_,
                               .correction = correction_,
                               .plan = Hypersolved(Method::kHeun, 1),
                               .entry = Entry::kState,
                               .direction = Direction::kNoiseToData};
  ExpectAsAlone(MakeFamily(corrected, {2}, steps_), compositions(1000));
}

TEST_P(RunJoinsTest, CorrectedStepsWithTheDensityOfTheirMap) {
  const PlannedSolve solve{.model = flow_,
                           .correction = correction_,
                           .plan = Hypersolved(Method::kHeun, 1),
                           .entry = Entry::kState,
                           .direction = Direction::kNoiseToData,
                           .log_density = LogDensity::kStepMap};
  ExpectAsAlone(MakeFamily(solve, {2}, steps_), compositions(2000));
}

TEST_P(RunJoinsTest, NoiseOfAnySeed) {
  const PlannedSolve solve{.model = flow_,
                           .plan = Fixed(Method::kMidpoint, 1),
                           .entry = Entry::kNoise,
                           .direction = Direction::kNoiseToData,
                           .log_density = LogDensity::kDivergence};
  ExpectAsAlone(MakeFamily(solve, {2}, steps_), compositions(2000));
}

TEST_P(RunJoinsTest, TolerancesOfTheirOwn) {
  const PlannedSolve solve{.model = flow_,
                           .plan = Dopri5(1e-5),
                           .tier = Tier::kDouble,
                           .entry = Entry::kState,
                           .save_at = {0.4},
                           .log_density = LogDensity::kDivergence};
  ExpectAsAlone(MakeFamily(solve, {2}, tolerances_), compositions(2000));
}

// The condition of a row goes with it, whatever joins and leaves.
TEST_P(RunJoinsTest, ConditionsOfTheirOwn) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  PlannedSolve solve{
      .model = model,
      .correction = fixture::RandomHypersolver(fixture::ConditionalCorrectionSpec(), *model, 2),
      .plan = Hypersolved(Method::kHeun, 1),
      .entry = Entry::kNoise,
      .direction = Direction::kNoiseToData,
      .log_density = LogDensity::kStepMap};
  ExpectAsAlone(MakeFamily(solve, {2}, steps_), compositions(500));
  solve = {.model = model, .plan = Dopri5(1e-4), .entry = Entry::kState, .save_at = {0.4}};
  ExpectAsAlone(MakeFamily(solve, {2}, tolerances_), compositions(500));
  solve = {.model = model,
           .correction = fixture::RandomHypersolver(
               fixture::FlowTablesSpec(*model, Coefficients::kChannel), *model, 3),
           .plan = Hypersolved(Method::kLearned, 1),
           .entry = Entry::kState,
           .direction = Direction::kNoiseToData};
  const std::vector<StepControl> tables = {FixedSteps{0}, FixedSteps{1}, FixedSteps{3}};
  ExpectAsAlone(MakeFamily(solve, {2}, tables), compositions(500));
}

TEST_P(RunJoinsTest, Images) {
  PlannedSolve solve{.model = fixture::RandomModel(fixture::ImageSpec(), 1),
                     .plan = Fixed(Method::kEuler, 1),
                     .entry = Entry::kState,
                     .want_outputs = true};
  ExpectAsAlone(MakeFamily(solve, {8, 12, 12}, steps_), compositions(1000));
  solve.plan = Dopri5(1e-3);
  ExpectAsAlone(MakeFamily(solve, {8, 12, 12}, tolerances_), compositions(1000));
}

// Rows under different tables, at different evaluations of theirs.
TEST_P(RunJoinsTest, LearnedSolversOfAnyCoefficients) {
  const std::vector<StepControl> tables = {FixedSteps{0}, FixedSteps{1}, FixedSteps{3}};
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FlowTablesSpec(*flow_, kind), *flow_, 3);
    const PlannedSolve solve{.model = flow_,
                             .correction = learned,
                             .plan = Hypersolved(Method::kLearned, 1),
                             .entry = Entry::kState,
                             .direction = Direction::kNoiseToData,
                             .log_density = LogDensity::kStepMap};
    ExpectAsAlone(MakeFamily(solve, {2}, tables), compositions(600));
  }
}

TEST_P(RunJoinsTest, Ab2WithItsDensity) {
  const PlannedSolve solve{.model = flow_,
                           .plan = Fixed(Method::kAb2, 1),
                           .entry = Entry::kState,
                           .direction = Direction::kNoiseToData,
                           .log_density = LogDensity::kDivergence};
  ExpectAsAlone(MakeFamily(solve, {2}, steps_), compositions(1000));
}

TEST_P(RunJoinsTest, ImagesUnderTables) {
  const auto images = fixture::RandomModel(fixture::ImageSpec(), 1);
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned = fixture::RandomHypersolver(
        fixture::TablesSpec(*images, Direction::kForward, kind), *images, 3);
    const PlannedSolve solve{.model = images,
                             .correction = learned,
                             .plan = Hypersolved(Method::kLearned, 1),
                             .entry = Entry::kState,
                             .want_outputs = true};
    ExpectAsAlone(MakeFamily(solve, {8, 12, 12}, {FixedSteps{1}, FixedSteps{3}}),
                  compositions(400));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RunJoinsTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
