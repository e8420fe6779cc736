// The bookkeeping of a fused run on images, with the kernel's twin on the host in its place.
#include "core/engine/fused/conv_run.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/fused/conv_model.h"
#include "core/engine/fused/fused_conv.h"
#include "core/engine/fused/fused_convs.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/model/layers/activations.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/conv_specs.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Solves by the twin. Rows that start above 1000 are unfit, and end in nonsense.
class TwinConv final : public FusedConv {
 public:
  explicit TwinConv(kernels::ConvModel model) : model_(std::move(model)) {}
  bool Fits() const override { return fits; }
  int64_t RowsAtOnce() const override { return 2; }
  int64_t ScratchBytes(const kernels::ConvTask&) const override { return 0; }
  void Solve(const kernels::ConvTask& task, const kernels::ConvRows& rows) const override {
    TORCH_CHECK(!broken, "the device is gone");
    launches.push_back(rows.count);
    const int64_t elements = model_.channels * model_.height * model_.width;
    for (int64_t row = 0; row < rows.count; ++row) {
      const float* from = rows.z0 + row * elements;
      rows.unfit[row] = from[0] > 1000.0f ? kernels::kRowUnfit : kernels::kRowFits;
      const std::vector<double> z = EndOf(task, {from, from + elements}, rows.evaluations[row]);
      if (rows.count > rows_to_the_end) rows.unfit[row] = kernels::kRowUnfinished;
      std::copy(z.begin(), z.end(), rows.z1 + row * elements);
      if (rows.unfit[row] != 0) rows.z1[row * elements] = 12345.0f;
    }
  }
  bool broken = false, fits = true;
  int64_t rows_to_the_end = 1000;         // in more rows than these none ends
  mutable std::vector<int64_t> launches;  // their rows
  mutable std::vector<int32_t> counts;    // of evaluations, of adaptive solves

 private:
  std::vector<double> EndOf(const kernels::ConvTask& task, const std::vector<double>& z0,
                            int32_t& evaluations) const {
    if (const auto* fixed = std::get_if<kernels::ConvPlan>(&task)) {
      return kernels::TwinConvSolve(model_, *fixed, z0);
    }
    kernels::TwinConvEnd end =
        kernels::TwinConvSolve(model_, std::get<kernels::ConvAdaptivePlan>(task), z0);
    evaluations = end.evaluations;
    counts.push_back(evaluations);
    return std::move(end.z);
  }

  const kernels::ConvModel model_;
};

class ConvRunTest : public testing::Test {
 protected:
  ConvRunTest()
      : conv_(std::make_shared<TwinConv>(ConvModelOf(*model_, correction_.get()).value())) {}

  BatchSpec Spec(Entry entry) const {
    BatchSpec spec{.model = model_, .correction = correction_, .tier = Tier::kFast, .entry = entry};
    spec.want_outputs = true;
    SetPlan(StepPlan(Hypersolved(Method::kHeun, 1)), spec);
    return spec;
  }
  std::unique_ptr<hyperserve::Run> Start(const BatchSpec& spec) const {
    return MakeConvRun(spec,
                       std::make_shared<c10::Stream>(c10::Stream::DEFAULT, at::Device(at::kCPU)),
                       [conv = conv_](int64_t) { return conv; });
  }
  BatchResult Exact(BatchSpec spec, const Segment& segment) {
    spec.tier = Tier::kExact;
    const auto steps = static_cast<int>(std::get<FixedSteps>(segment.control).steps);
    return SolveAlone(*runtime_, spec, Hypersolved(Method::kHeun, steps), segment).value();
  }
  static HostTensor Rows(int64_t count, Shape shape, uint64_t seed) {
    const HostTensor normals = NormalRows(count, shape, seed, 0.2);
    HostTensor rows = HostTensor::Zeros(Dtype::kF32, normals.shape);
    std::copy(normals.as<double>().begin(), normals.as<double>().end(), rows.as<float>().begin());
    return rows;
  }
  static Segment SegmentOf(const HostTensor& rows, int64_t steps) {
    return {.rows = rows.shape[0], .data = rows.view(), .control = FixedSteps{.steps = steps}};
  }
  static void ExpectNear(const HostTensor& found, const HostTensor& wanted) {
    ASSERT_EQ(found.shape, wanted.shape);
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      ASSERT_NEAR(Number(found, i), Number(wanted, i), 1e-4) << i;
    }
  }

  const std::shared_ptr<const Model> model_ =
      fixture::RandomModel(fixture::FusedImageSpec({SoftplusLayer{}}), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FusedImageCorrectionSpec(), *model_, 2);
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  std::shared_ptr<TwinConv> conv_;
};

// Two segments, one of more rows than the maps see at once; inputs go through stem and head.
TEST_F(ConvRunTest, SolvesAsTheReadableEngine) {
  const BatchSpec spec = Spec(Entry::kInput);
  const HostTensor a = Rows(kMapRows + 2, model_->spec().input.shape, 3);
  const HostTensor b = Rows(1, model_->spec().input.shape, 4);
  const auto run = Start(spec);
  ASSERT_TRUE(run->Admit(SegmentOf(a, 1)).ok());
  const Ticket second = run->Admit(SegmentOf(b, 2)).value();
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  EXPECT_THAT(conv_->launches, ElementsAre(kMapRows + 2, 1));
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  ASSERT_EQ(solved.size(), 2u);
  EXPECT_EQ(solved[1].ticket, second);
  for (const auto& [found, wanted] : {std::pair{&solved[0].rows, Exact(spec, SegmentOf(a, 1))},
                                      std::pair{&solved[1].rows, Exact(spec, SegmentOf(b, 2))}}) {
    ExpectNear(found->state, wanted.state);
    ExpectNear(found->outputs, wanted.outputs);
    EXPECT_EQ(found->nfe, wanted.nfe);
    EXPECT_EQ(found->correction_evaluations, wanted.correction_evaluations);
    EXPECT_EQ(found->macs, wanted.macs);
    EXPECT_EQ(found->status, wanted.status);
    EXPECT_EQ(found->solved_again, 0);
  }
}

TEST_F(ConvRunTest, RowsThatDoNotFitAreSolvedInFloat32) {
  const BatchSpec spec = Spec(Entry::kState);
  HostTensor rows = Rows(4, model_->state_shape(), 5);
  const size_t elements = static_cast<size_t>(model_->state_elements());
  rows.as<float>()[0] = 2000.0f;
  rows.as<float>()[2 * elements] = std::numeric_limits<float>::infinity();
  const auto run = Start(spec);
  ASSERT_TRUE(run->Admit(SegmentOf(rows, 1)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const BatchResult found = run->TakeFinished().value().at(0).rows;
  const BatchResult wanted = Exact(spec, SegmentOf(rows, 1));
  EXPECT_EQ(found.solved_again, 2);
  EXPECT_EQ(found.status, wanted.status);
  EXPECT_EQ(found.status[2], RowStatus::kNonFinite);
  EXPECT_EQ(RowBytes(found.state, 0), RowBytes(wanted.state, 0));
  EXPECT_EQ(RowBytes(found.outputs, 0), RowBytes(wanted.outputs, 0));
  EXPECT_NE(RowBytes(found.state, 1), RowBytes(wanted.state, 1));  // the twin is in double
}

TEST_F(ConvRunTest, OutputsAlone) {
  BatchSpec spec = Spec(Entry::kState);
  spec.want_state = false;
  HostTensor rows = Rows(2, model_->state_shape(), 6);
  rows.as<float>()[0] = 2000.0f;
  const auto run = Start(spec);
  ASSERT_TRUE(run->Admit(SegmentOf(rows, 1)).ok());
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const BatchResult found = run->TakeFinished().value().at(0).rows;
  EXPECT_TRUE(found.state.shape.empty());
  ExpectNear(found.outputs, Exact(spec, SegmentOf(rows, 1)).outputs);
}

TEST_F(ConvRunTest, RefusesWhatOneLaunchMayNotTake) {
  const auto run = Start(Spec(Entry::kState));
  const HostTensor rows = Rows(1, model_->state_shape(), 7);
  const int64_t steps_max = kLaunchRowMacsMax / (2 * model_->field_macs() + correction_->macs());
  const absl::Status status = run->Admit(SegmentOf(rows, steps_max + 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ask for tier exact"));
  EXPECT_TRUE(run->Admit(SegmentOf(rows, steps_max)).ok());
}

TEST_F(ConvRunTest, DroppedSegmentsHaveNoResultAndAnErrorEmptiesTheRun) {
  const auto run = Start(Spec(Entry::kState));
  const HostTensor rows = Rows(1, model_->state_shape(), 8);
  const Ticket dropped = run->Admit(SegmentOf(rows, 1)).value();
  const Ticket kept = run->Admit(SegmentOf(rows, 1)).value();
  run->Drop(dropped);
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  std::vector<SolvedSegment> finished = run->TakeFinished().value();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].ticket, kept);
  ASSERT_TRUE(run->Admit(SegmentOf(rows, 1)).ok());
  EXPECT_EQ(run->Advance(1, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  conv_->broken = true;
  ASSERT_TRUE(run->Admit(SegmentOf(rows, 1)).ok());
  EXPECT_THAT(std::string(run->Advance(1, nullptr).status().message()),
              HasSubstr("the device is gone"));
  conv_->broken = false;
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  EXPECT_TRUE(run->TakeFinished().value().empty());
}

TEST_F(ConvRunTest, TablesAreSolvedByTheirEvaluations) {
  const auto learned = fixture::RandomHypersolver(
      fixture::FusedImageTablesSpec(*model_, Coefficients::kMap), *model_, 3);
  BatchSpec spec{
      .model = model_, .correction = learned, .tier = Tier::kFast, .entry = Entry::kState};
  SetPlan(StepPlan(Hypersolved(Method::kLearned, 3)), spec);
  std::vector<int64_t> asked;
  const auto run = MakeConvRun(
      spec, std::make_shared<c10::Stream>(c10::Stream::DEFAULT, at::Device(at::kCPU)),
      [&](int64_t evaluations) -> absl::StatusOr<std::shared_ptr<const FusedConv>> {
        asked.push_back(evaluations);
        return std::make_shared<TwinConv>(ConvModelOf(*model_, learned.get(), evaluations).value());
      });
  const HostTensor rows = Rows(2, model_->state_shape(), 9);
  for (const int64_t evaluations : {3, 1}) {
    ASSERT_TRUE(run->Admit(SegmentOf(rows, evaluations)).ok());
  }
  EXPECT_THAT(asked, ElementsAre(3, 1));
  EXPECT_TRUE(run->Advance(1, nullptr).value());
  const std::vector<SolvedSegment> solved = run->TakeFinished().value();
  spec.tier = Tier::kExact;
  for (size_t i = 0; i < 2; ++i) {
    const int evaluations = i == 0 ? 3 : 1;
    const BatchResult wanted =
        SolveAlone(*runtime_, spec, Hypersolved(Method::kLearned, evaluations),
                   SegmentOf(rows, evaluations))
            .value();
    ExpectNear(solved[i].rows.state, wanted.state);
    EXPECT_EQ(solved[i].rows.nfe, wanted.nfe);
    EXPECT_EQ(solved[i].rows.macs, wanted.macs);
    EXPECT_EQ(solved[i].rows.correction_evaluations, wanted.correction_evaluations);
  }
}

class AdaptiveConvRunTest : public ConvRunTest {
 protected:
  AdaptiveConvRunTest() {
    conv_ = std::make_shared<TwinConv>(ConvModelOf(*model_, nullptr).value());
    spec_.want_outputs = true;
    SetPlan(StepPlan(Dopri5(1e-3)), spec_);
  }
  static Segment SegmentOf(const HostTensor& rows) {
    return {.rows = rows.shape[0],
            .data = rows.view(),
            .control = ErrorControl{.rtol = 1e-3, .atol = 1e-3}};
  }
  BatchResult Found(const HostTensor& rows) {
    const auto run = Start(spec_);
    EXPECT_TRUE(run->Admit(SegmentOf(rows)).ok());
    EXPECT_TRUE(run->Advance(1, nullptr).value());
    return run->TakeFinished().value().at(0).rows;
  }
  BatchResult Wanted(const HostTensor& rows) {
    BatchSpec spec = spec_;
    spec.tier = Tier::kExact;
    return SolveAlone(*runtime_, spec, Dopri5(1e-3), SegmentOf(rows)).value();
  }

  BatchSpec spec_{.model = model_, .correction = nullptr, .tier = Tier::kFast};
};

TEST_F(AdaptiveConvRunTest, EachRowHasItsOwnSteps) {
  const HostTensor rows = Rows(7, model_->spec().input.shape, 10);
  const BatchResult found = Found(rows), wanted = Wanted(rows);
  EXPECT_THAT(conv_->launches, ElementsAre(2 * kAdaptiveRowsEach, 1));
  ExpectNear(found.outputs, wanted.outputs);
  EXPECT_EQ(found.nfe, conv_->counts);
  EXPECT_EQ(found.macs[6] - wanted.macs[6], (found.nfe[6] - wanted.nfe[6]) * model_->field_macs());
  EXPECT_THAT(found.correction_evaluations, Each(0));
}

TEST_F(AdaptiveConvRunTest, RowsThatDidNotEndAreSolvedInFewerThenInFloat32) {
  const HostTensor rows = Rows(3, model_->spec().input.shape, 11);
  conv_->rows_to_the_end = 2;
  EXPECT_EQ(Found(rows).solved_again, 0);
  EXPECT_THAT(conv_->launches, ElementsAre(3, 2, 1));
  conv_->rows_to_the_end = 0;
  const BatchResult found = Found(rows), wanted = Wanted(rows);
  EXPECT_EQ(found.solved_again, 3);
  EXPECT_EQ(found.nfe, wanted.nfe);
  ExpectNear(found.outputs, wanted.outputs);
}

TEST_F(AdaptiveConvRunTest, RefusesTolerancesBelowItsRounding) {
  const HostTensor rows = Rows(1, model_->spec().input.shape, 12);
  Segment segment = SegmentOf(rows);
  segment.control = ErrorControl{.rtol = 1e-4, .atol = 1e-5};
  const absl::Status status = Start(spec_)->Admit(segment).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1e-05, below 0.0001"));
}

TEST_F(ConvRunTest, SupportsWhatTheKernelCanRun) {
  int made = 0;
  FusedConvs convs([&](const kernels::ConvModel&) { return ++made, conv_; });
  const auto refusal = [&](const BatchSpec& spec) {
    return std::string(convs.Supports(spec).message());
  };
  BatchSpec spec = Spec(Entry::kInput);
  EXPECT_EQ(refusal(spec), "");
  EXPECT_EQ(refusal(spec), "");
  EXPECT_EQ(made, 1);  // once for a model
  spec.tier = Tier::kExact;
  EXPECT_THAT(refusal(spec), HasSubstr("tier fast only"));
  spec = Spec(Entry::kInput);
  spec.save_at = {0.5};
  EXPECT_THAT(refusal(spec), HasSubstr("saves no states"));
  spec = Spec(Entry::kInput);
  spec.want_distance = true;
  EXPECT_THAT(refusal(spec), HasSubstr("no distance of each row"));
  spec = Spec(Entry::kInput);
  spec.correction = nullptr;
  SetPlan(StepPlan(Dopri5(1e-4)), spec);
  EXPECT_EQ(refusal(spec), "");
  spec.method = {.method = Method::kHeunEuler};
  EXPECT_THAT(refusal(spec), HasSubstr("whose last stage is the next step's first"));
  spec = Spec(Entry::kInput);
  conv_->fits = false;
  EXPECT_THAT(refusal(spec), HasSubstr("do not fit in the memory"));
}

}  // namespace
}  // namespace hyperserve
