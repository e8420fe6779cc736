// The fused engine for images on every CUDA device against the readable engine in tier double,
// which is the oracle. Skipped where there is no CUDA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/fused/conv_run.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/conv_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

// The net of the paper for 28x28 images.
ModelSpec PaperSpec() {
  ModelSpec spec = fixture::FusedImageSpec({SoftplusLayer{}});
  spec.input.shape = {1, 28, 28};
  spec.stem[1] = {AugmentLayer{.layers = {fixture::Conv3x3(1, 31)}}};
  spec.field = {fixture::Conv3x3(32, 46),
                {SoftplusLayer{}},
                fixture::Conv3x3(46, 46),
                {SoftplusLayer{}},
                fixture::Conv3x3(46, 32)};
  spec.head = {{MeanPoolLayer{}}, {LinearLayer{.in = 32, .out = 10}}};
  return spec;
}

HypersolverSpec PaperCorrectionSpec() {
  HypersolverSpec spec = fixture::FusedImageCorrectionSpec();
  spec.method = {.method = Method::kEuler};
  spec.inputs = {CorrectionInput::kState, CorrectionInput::kSlope1, CorrectionInput::kStep};
  spec.net = {fixture::Conv3x3(65, 32),
              {PreluLayer{.slopes = 1}},
              fixture::Conv3x3(32, 32),
              {PreluLayer{.slopes = 1}},
              fixture::Conv3x3(32, 32)};
  return spec;
}

// The norm of a - b over that of b - from.
double RelativeError(const HostTensor& a, const HostTensor& b, const HostTensor& from) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < b.elements(); ++i) {
    error += std::pow(Number(a, i) - Number(b, i), 2);
    norm += std::pow(Number(b, i) - Number(from, i), 2);
  }
  return std::sqrt(error / norm);
}

HostTensor Float(const HostTensor& rows) {
  HostTensor result = HostTensor::Zeros(Dtype::kF32, rows.shape);
  std::copy(rows.as<double>().begin(), rows.as<double>().end(), result.as<float>().begin());
  return result;
}

// Numbers of [0, 1].
HostTensor Images(int64_t rows, const Shape& shape, uint64_t seed) {
  HostTensor images = Float(NormalRows(rows, shape, seed));
  for (float& value : images.as<float>()) value = 0.5f + 0.5f * std::tanh(value);
  return images;
}

int64_t ClassOf(const HostTensor& outputs, int64_t row) {
  const int64_t classes = outputs.shape[1];
  int64_t best = 0;
  for (int64_t i = 1; i < classes; ++i) {
    if (Number(outputs, row * classes + i) > Number(outputs, row * classes + best)) best = i;
  }
  return best;
}

// By how much the best output is above that of another class, in the largest output.
double LeadOf(const HostTensor& outputs, int64_t row, int64_t other) {
  const int64_t first = row * outputs.shape[1];
  double largest = 0;
  for (int64_t i = 0; i < outputs.shape[1]; ++i) {
    largest = std::max(largest, std::abs(Number(outputs, first + i)));
  }
  const double best = Number(outputs, first + ClassOf(outputs, row));
  return (best - Number(outputs, first + other)) / largest;
}

class FusedImagesTest : public EngineTest {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "the fused engine wants a CUDA device";
  }
  std::vector<SolvedSegment> Together(const BatchSpec& spec, const std::vector<Segment>& segments) {
    DeviceRuntime::StartedRun started = runtime_->StartRun(spec, 1).value();
    EXPECT_EQ(started.choice.engine, "fused");
    for (const Segment& segment : segments) EXPECT_TRUE(started.run->Admit(segment).ok());
    EXPECT_TRUE(started.run->Advance(1, nullptr).value());
    return started.run->TakeFinished().value();
  }

  const std::shared_ptr<const Model> model_ = fixture::RandomModel(PaperSpec(), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(PaperCorrectionSpec(), *model_, 2);
};

// The gate of tier fast: one evaluation of f within 1e-3 over 256 rows. An Euler step of one is
// z + f(z).
TEST_P(FusedImagesTest, OneEvaluationIsThatOfTheOracle) {
  const auto small = fixture::RandomModel(fixture::FusedImageSpec({ReluLayer{}}), 3);
  const auto separable = fixture::RandomModel(fixture::FusedSeparableSpec(), 4);
  for (const auto& model : {model_, small, separable}) {
    const HostTensor rows = Float(NormalRows(256, model->state_shape(), 11));
    PlannedSolve solve{.model = model, .plan = Fixed(Method::kEuler, 1), .entry = Entry::kState};
    solve.tier = Tier::kFast;
    const BatchResult fast = EngineTest::Run(solve, rows);
    solve.tier = Tier::kDouble;
    const BatchResult oracle = EngineTest::Run(solve, rows);
    EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 1e-3);
    EXPECT_EQ(fast.nfe, oracle.nfe);
    EXPECT_EQ(fast.macs, oracle.macs);
    EXPECT_EQ(fast.status, oracle.status);
  }
}

// The other gate: at least 99.9 % of the classes are those of the oracle.
TEST_P(FusedImagesTest, ClassesAreThoseOfTheOracle) {
  constexpr int64_t kImages = 2000;
  const HostTensor images = Images(kImages, model_->spec().input.shape, 12);
  PlannedSolve solve{.model = model_,
                     .correction = correction_,
                     .plan = Hypersolved(Method::kEuler, 2),
                     .tier = Tier::kFast,
                     .want_outputs = true};
  const BatchResult fast = EngineTest::Run(solve, images);
  solve.tier = Tier::kDouble;
  const BatchResult oracle = EngineTest::Run(solve, images);
  int64_t equal = 0;
  for (int64_t row = 0; row < kImages; ++row) {
    equal += ClassOf(fast.outputs, row) == ClassOf(oracle.outputs, row) ? 1 : 0;
  }
  EXPECT_GE(equal, kImages * 999 / 1000);
  EXPECT_EQ(fast.correction_evaluations, oracle.correction_evaluations);
  EXPECT_EQ(fast.macs, oracle.macs);
}

// Tables of every kind of coefficient, in the arithmetic of f.
TEST_P(FusedImagesTest, LearnedTablesAreThoseOfTheOracle) {
  const HostTensor rows = Float(NormalRows(256, model_->state_shape(), 15));
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FusedImageTablesSpec(*model_, kind), *model_, 3);
    for (const TableSpec& table : learned->spec().tables) {
      PlannedSolve solve{.model = model_,
                         .correction = learned,
                         .plan = Hypersolved(Method::kLearned, table.evaluations),
                         .tier = Tier::kFast,
                         .entry = Entry::kState};
      EXPECT_EQ(runtime_->StartRun(SpecOf(solve, Dtype::kF32), 1)->choice.engine, "fused");
      const BatchResult fast = EngineTest::Run(solve, rows);
      solve.tier = Tier::kDouble;
      const BatchResult oracle = EngineTest::Run(solve, rows);
      EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 1e-3) << table.evaluations;
      EXPECT_EQ(fast.solved_again, 0);
      EXPECT_EQ(fast.macs, oracle.macs);
      EXPECT_EQ(fast.nfe, oracle.nfe);
    }
  }
}

// Every plan of the learned solvers that ship, from images to classes: the end state within 1e-3 of
// itself. Noise lies near the borders of classes: one may be another where the two best outputs are
// within rounding of each other.
TEST_P(FusedImagesTest, ShippedSolversAreWithinTheGates) {
  constexpr int64_t kImages = 400;
  for (const char* name : {"fashion", "cifar"}) {
    const fixture::Shipped shipped = fixture::ShippedLearned(name);
    const HostTensor images = Images(kImages, shipped.model->spec().input.shape, 19);
    int64_t others = 0;
    for (const TableSpec& table : shipped.learned->spec().tables) {
      PlannedSolve solve{.model = shipped.model,
                         .correction = shipped.learned,
                         .plan = Hypersolved(Method::kLearned, table.evaluations),
                         .tier = Tier::kFast,
                         .want_outputs = true};
      EXPECT_EQ(runtime_->StartRun(SpecOf(solve, Dtype::kF32), 1)->choice.engine, "fused");
      const BatchResult fast = EngineTest::Run(solve, images);
      solve.tier = Tier::kDouble;
      const BatchResult oracle = EngineTest::Run(solve, images);
      const HostTensor nothing = HostTensor::Zeros(Dtype::kF64, oracle.state.shape);
      EXPECT_LT(RelativeError(fast.state, oracle.state, nothing), 1e-3)
          << name << ", learned:" << table.evaluations;
      EXPECT_EQ(fast.solved_again, 0);
      EXPECT_EQ(fast.macs, oracle.macs);
      EXPECT_EQ(fast.nfe, oracle.nfe);
      for (int64_t row = 0; row < kImages; ++row) {
        if (ClassOf(fast.outputs, row) == ClassOf(oracle.outputs, row)) continue;
        EXPECT_LT(LeadOf(oracle.outputs, row, ClassOf(fast.outputs, row)), 3e-3)
            << name << ", learned:" << table.evaluations << ", row " << row;
        ++others;
      }
    }
    EXPECT_LE(others, 6 * kImages / 200) << name;
  }
}

// The gates of tier fast under error control, at the least tolerance that it takes, against the
// solution: what a solve adds to the state is within 1e-3, and 99.9 % of the classes are the same.
TEST_P(FusedImagesTest, ErrorControlIsWithinTheGates) {
  const auto both = [&](PlannedSolve solve, const HostTensor& rows) {
    solve.plan = Dopri5(kFastToleranceMin);
    solve.tier = Tier::kFast;
    const BatchResult fast = EngineTest::Run(solve, rows);
    EXPECT_EQ(fast.solved_again, 0);
    solve.plan = Dopri5(1e-8);
    solve.tier = Tier::kDouble;
    return std::pair(fast, EngineTest::Run(solve, rows));
  };
  const HostTensor rows = Float(NormalRows(256, model_->state_shape(), 16));
  const PlannedSolve of_states{.model = model_, .correction = nullptr, .entry = Entry::kState};
  const auto [fast, oracle] = both(of_states, rows);
  EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 1e-3);
  constexpr int64_t kImages = 1000;
  const HostTensor images = Images(kImages, model_->spec().input.shape, 17);
  const PlannedSolve of_images{.model = model_, .correction = nullptr, .want_outputs = true};
  const auto [fast_images, oracle_images] = both(of_images, images);
  int64_t equal = 0;
  for (int64_t row = 0; row < kImages; ++row) {
    const bool same = ClassOf(fast_images.outputs, row) == ClassOf(oracle_images.outputs, row);
    equal += same ? 1 : 0;
  }
  EXPECT_GE(equal, kImages * 999 / 1000);
}

// Bit for bit: again, alone, in any company and at any place.
TEST_P(FusedImagesTest, ARowsBitsAreItsOwn) {
  const HostTensor images = Images(150, model_->spec().input.shape, 13);
  BatchSpec spec{.model = model_, .correction = correction_, .tier = Tier::kFast};
  spec.want_outputs = true;
  SetPlan(StepPlan(Hypersolved(Method::kEuler, 2)), spec);
  const auto part = [&](int64_t begin, int64_t rows, int64_t steps) {
    return Segment{
        .rows = rows, .data = RowsOf(images.view(), begin, rows), .control = FixedSteps{steps}};
  };
  const BatchResult all = Together(spec, {part(0, 150, 2)})[0].rows;
  EXPECT_EQ(Together(spec, {part(0, 150, 2)})[0].rows.outputs.bytes, all.outputs.bytes);
  const auto cut = Together(spec, {part(149, 1, 2), part(3, 1, 1), part(100, 40, 2)});
  EXPECT_EQ(RowBytes(cut[0].rows.state, 0), RowBytes(all.state, 149));
  EXPECT_EQ(RowBytes(cut[0].rows.outputs, 0), RowBytes(all.outputs, 149));
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(RowBytes(cut[2].rows.state, i), RowBytes(all.state, 100 + i));
    EXPECT_EQ(RowBytes(cut[2].rows.outputs, i), RowBytes(all.outputs, 100 + i));
  }
  EXPECT_NE(RowBytes(cut[1].rows.state, 0), RowBytes(all.state, 3));  // one step
  const auto alone = Together(spec, {part(77, 1, 2)});
  EXPECT_EQ(RowBytes(alone[0].rows.outputs, 0), RowBytes(all.outputs, 77));
}

TEST_P(FusedImagesTest, AdaptiveRowsBitsAreTheirOwn) {
  const HostTensor images = Images(150, model_->spec().input.shape, 18);
  BatchSpec spec{.model = model_, .correction = nullptr, .tier = Tier::kFast};
  SetPlan(StepPlan(Dopri5(1e-3)), spec);
  const auto part = [&](int64_t begin, int64_t rows) {
    return Segment{.rows = rows,
                   .data = RowsOf(images.view(), begin, rows),
                   .control = ErrorControl{.rtol = 1e-3, .atol = 1e-3}};
  };
  const BatchResult all = Together(spec, {part(0, 150)})[0].rows;
  const auto cut = Together(spec, {part(149, 1), part(3, 20)});
  EXPECT_EQ(RowBytes(cut[0].rows.state, 0), RowBytes(all.state, 149));
  EXPECT_EQ(cut[0].rows.nfe[0], all.nfe[149]);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(RowBytes(cut[1].rows.state, i), RowBytes(all.state, 3 + i));
  }
}

TEST_P(FusedImagesTest, RowsThatOverflowAreSolvedInTierExact) {
  HostTensor rows = Float(NormalRows(40, model_->state_shape(), 14));
  const auto elements = static_cast<size_t>(model_->state_elements());
  for (const size_t row : {3, 39}) rows.as<float>()[row * elements] = 1e6f;
  PlannedSolve solve{.model = model_,
                     .correction = correction_,
                     .plan = Hypersolved(Method::kEuler, 2),
                     .tier = Tier::kFast,
                     .entry = Entry::kState,
                     .want_outputs = true};
  const BatchResult fast = EngineTest::Run(solve, rows);
  solve.tier = Tier::kExact;
  const BatchResult exact = EngineTest::Run(solve, rows);
  EXPECT_EQ(fast.solved_again, 2);
  EXPECT_EQ(fast.status, exact.status);
  for (const int64_t row : {3, 39}) {
    const int64_t first = row * model_->state_elements();
    EXPECT_NEAR(Number(fast.state, first) / Number(exact.state, first), 1.0, 1e-5);
    EXPECT_EQ(ClassOf(fast.outputs, row), ClassOf(exact.outputs, row));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedImagesTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
