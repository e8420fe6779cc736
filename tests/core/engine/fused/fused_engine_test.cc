// The fused engine on every CUDA device against the readable engine in tier double, which is the
// oracle. Skipped where there is no CUDA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const Layer kActivations[] = {{SoftplusLayer{}}, {TanhLayer{}}, {SiluLayer{}}, {ReluLayer{}}};

HostTensor Float(const HostTensor& rows) {
  HostTensor result = HostTensor::Zeros(Dtype::kF32, rows.shape);
  for (int64_t i = 0; i < rows.elements(); ++i) {
    result.as<float>()[static_cast<size_t>(i)] = static_cast<float>(Number(rows, i));
  }
  return result;
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

// The mean difference of log-densities.
double DensityError(const BatchResult& a, const BatchResult& b) {
  double sum = 0;
  const int64_t rows = a.log_density.elements();
  for (int64_t row = 0; row < rows; ++row) {
    sum += std::fabs(Number(a.log_density, row) - Number(b.log_density, row));
  }
  return sum / static_cast<double>(rows);
}

// The middle one of their differences: a map that is nearly singular at a few rows has a logarithm
// there that says more of these rows than of the others.
double MiddleDensityError(const BatchResult& a, const BatchResult& b) {
  std::vector<double> errors;
  for (int64_t row = 0; row < a.log_density.elements(); ++row) {
    errors.push_back(std::fabs(Number(a.log_density, row) - Number(b.log_density, row)));
  }
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

class FusedEngineTest : public EngineTest {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "the fused engine wants a CUDA device";
  }

  // A fast hypersolved solve from noise to data.
  BatchSpec Spec(Entry entry) const {
    BatchSpec spec{.model = model_,
                   .correction = correction_,
                   .tier = Tier::kFast,
                   .entry = entry,
                   .direction = Direction::kNoiseToData};
    SetPlan(StepPlan(Hypersolved(Method::kHeun, 2)), spec);
    return spec;
  }

  // Solves the segments in one run.
  std::vector<SolvedSegment> Together(const BatchSpec& spec, const std::vector<Segment>& segments) {
    DeviceRuntime::StartedRun started = runtime_->StartRun(spec, 1).value();
    EXPECT_EQ(started.choice.engine, "fused");
    for (const Segment& segment : segments) EXPECT_TRUE(started.run->Admit(segment).ok());
    EXPECT_TRUE(started.run->Advance(1, nullptr).value());
    return started.run->TakeFinished().value();
  }

  const std::shared_ptr<const Model> model_ =
      fixture::RandomModel(fixture::FusedFlowSpec({SoftplusLayer{}}), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FusedCorrectionSpec(), *model_, 2);
};

// The gate of tier fast: one evaluation of f within 1e-3 over 256 rows. An Euler step of one is
// z + f(z).
TEST_P(FusedEngineTest, OneEvaluationIsThatOfTheOracle) {
  for (const Layer& activation : kActivations) {
    const auto model = fixture::RandomModel(fixture::FusedFlowSpec(activation), 3);
    const HostTensor rows = Float(NormalRows(256, {2}, 11));
    PlannedSolve solve{.model = model, .plan = Fixed(Method::kEuler, 1), .entry = Entry::kState};
    solve.tier = Tier::kFast;
    const BatchResult fast = EngineTest::Run(solve, rows);
    solve.tier = Tier::kDouble;
    const BatchResult oracle = EngineTest::Run(solve, rows);
    EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 1e-3) << LayerName(activation);
    EXPECT_EQ(fast.nfe, oracle.nfe);
    EXPECT_EQ(fast.macs, oracle.macs);
    EXPECT_EQ(fast.status, oracle.status);
  }
}

TEST_P(FusedEngineTest, AHypersolvedPlanAgainstTheField) {
  const HostTensor rows = Float(NormalRows(256, {2}, 12));
  PlannedSolve solve{.model = model_,
                     .correction = correction_,
                     .plan = Hypersolved(Method::kHeun, 2),
                     .tier = Tier::kFast,
                     .entry = Entry::kState,
                     .direction = Direction::kNoiseToData};
  const BatchResult fast = EngineTest::Run(solve, rows);
  solve.tier = Tier::kDouble;
  const BatchResult oracle = EngineTest::Run(solve, rows);
  // Two steps of three nets, each within 1e-3 of its own.
  EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 3e-3);
  EXPECT_EQ(fast.correction_evaluations, oracle.correction_evaluations);
}

// Tables of every kind of coefficient, with readouts and without, in one run.
TEST_P(FusedEngineTest, LearnedTablesAreThoseOfTheOracle) {
  const auto model = fixture::RandomModel(fixture::FusedFlowSpec({TanhLayer{}}), 4);
  const HostTensor rows = Float(NormalRows(256, {2}, 15));
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FusedTablesSpec(*model, kind), *model, 3);
    for (const TableSpec& table : learned->spec().tables) {
      PlannedSolve solve{.model = model,
                         .correction = learned,
                         .plan = Hypersolved(Method::kLearned, table.evaluations),
                         .tier = Tier::kFast,
                         .entry = Entry::kState,
                         .direction = Direction::kNoiseToData};
      EXPECT_EQ(runtime_->StartRun(SpecOf(solve, Dtype::kF32), 1)->choice.engine, "fused");
      const BatchResult fast = EngineTest::Run(solve, rows);
      solve.tier = Tier::kDouble;
      const BatchResult oracle = EngineTest::Run(solve, rows);
      EXPECT_LT(RelativeError(fast.state, oracle.state, rows), 2e-3) << table.evaluations;
      EXPECT_EQ(fast.macs, oracle.macs);
      EXPECT_EQ(fast.nfe, oracle.nfe);
      solve.log_density = LogDensity::kStepMap;
      const BatchResult dense_oracle = EngineTest::Run(solve, rows);
      solve.tier = Tier::kFast;
      const BatchResult dense = EngineTest::Run(solve, rows);
      EXPECT_LT(MiddleDensityError(dense, dense_oracle), 2e-3) << table.evaluations;
      EXPECT_THAT(dense.macs, testing::Each(3 * fast.macs[0]));  // two tangents
      EXPECT_EQ(dense.state.bytes, fast.state.bytes);
      EXPECT_EQ(fast.correction_evaluations, oracle.correction_evaluations);
    }
  }
}

// Log-densities of both kinds and both directions: the mean error over 256 rows.
TEST_P(FusedEngineTest, LogDensitiesAreThoseOfTheOracle) {
  const HostTensor rows = Float(NormalRows(256, {2}, 13));
  const struct {
    StepPlan plan;
    LogDensity density;
    std::shared_ptr<const Hypersolver> correction;
    Direction direction;
  } cases[] = {
      {Fixed(Method::kRk4, 3), LogDensity::kDivergence, nullptr, Direction::kDataToNoise},
      {Fixed(Method::kRk4, 3), LogDensity::kDivergence, nullptr, Direction::kNoiseToData},
      {Fixed(Method::kEuler, 2), LogDensity::kStepMap, nullptr, Direction::kDataToNoise},
      {Hypersolved(Method::kHeun, 2), LogDensity::kStepMap, correction_, Direction::kNoiseToData}};
  for (const auto& one : cases) {
    PlannedSolve solve{.model = model_,
                       .correction = one.correction,
                       .plan = one.plan,
                       .tier = Tier::kFast,
                       .entry = Entry::kState,
                       .direction = one.direction,
                       .log_density = one.density};
    const BatchResult fast = EngineTest::Run(solve, rows);
    solve.tier = Tier::kDouble;
    const BatchResult oracle = EngineTest::Run(solve, rows);
    EXPECT_LT(DensityError(fast, oracle), 2e-3);
    EXPECT_EQ(fast.status, oracle.status);
    solve.log_density = LogDensity::kNone;
    solve.tier = Tier::kFast;
    const BatchResult plain = EngineTest::Run(solve, rows);
    EXPECT_EQ(plain.state.bytes, fast.state.bytes);
    EXPECT_THAT(fast.macs, testing::Each(3 * plain.macs[0]));  // two tangents
  }
}

TEST_P(FusedEngineTest, NoiseIsThatOfThePromise) {
  PlannedSolve solve{.model = model_,
                     .correction = correction_,
                     .plan = Hypersolved(Method::kHeun, 2),
                     .direction = Direction::kNoiseToData};
  const HostTensor noise = Float(NormalRows(100, {2}, 21));
  const auto states = Together(Spec(Entry::kState),
                               {{.rows = 100, .data = noise.view(), .control = FixedSteps{2}}});
  const auto samples = Together(Spec(Entry::kNoise),
                                {{.rows = 100, .data = {}, .seed = 21, .control = FixedSteps{2}}});
  for (int64_t i = 0; i < 200; ++i) {
    EXPECT_NEAR(Number(samples[0].rows.state, i), Number(states[0].rows.state, i), 1e-3);
  }
}

// Bit for bit: again, alone, in any company and at any place.
TEST_P(FusedEngineTest, ARowsBitsAreItsOwn) {
  const auto noise = [](int64_t first, int64_t rows) {
    return Segment{.rows = rows,
                   .data = {},
                   .seed = 5,
                   .first_row = static_cast<uint64_t>(first),
                   .control = FixedSteps{2}};
  };
  const BatchSpec spec = Spec(Entry::kNoise);
  const HostTensor all = Together(spec, {noise(0, 5000)})[0].rows.state;
  EXPECT_EQ(Together(spec, {noise(0, 5000)})[0].rows.state.bytes, all.bytes);
  const auto parts = Together(spec, {noise(4990, 1), noise(17, 1), noise(100, 70)});
  EXPECT_EQ(RowBytes(parts[0].rows.state, 0), RowBytes(all, 4990));
  EXPECT_EQ(RowBytes(parts[1].rows.state, 0), RowBytes(all, 17));
  for (int64_t i = 0; i < 70; ++i) {
    EXPECT_EQ(RowBytes(parts[2].rows.state, i), RowBytes(all, 100 + i));
  }
  const HostTensor rows = Float(NormalRows(70, {2}, 4));
  const auto state = [&](int64_t begin, int64_t count, int64_t steps) {
    return Segment{
        .rows = count, .data = RowsOf(rows.view(), begin, count), .control = FixedSteps{steps}};
  };
  const BatchSpec states = Spec(Entry::kState);
  const HostTensor whole = Together(states, {state(0, 70, 2)})[0].rows.state;
  const auto cut = Together(states, {state(3, 5, 2), state(0, 2, 2), state(1, 1, 3)});
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(RowBytes(cut[0].rows.state, i), RowBytes(whole, 3 + i));
  }
  EXPECT_EQ(RowBytes(cut[1].rows.state, 1), RowBytes(whole, 1));
  EXPECT_NE(RowBytes(cut[2].rows.state, 0), RowBytes(whole, 1));  // three steps
}

TEST_P(FusedEngineTest, RowsThatOverflowAreSolvedInTierExact) {
  HostTensor rows = Float(NormalRows(100, {2}, 6));
  for (const size_t row : {3, 64}) rows.as<float>()[2 * row] = 1e6f;
  rows.as<float>()[2 * 50] = 3e38f;
  const Segment segment{.rows = 100, .data = rows.view(), .control = FixedSteps{2}};
  const BatchResult fast = Together(Spec(Entry::kState), {segment})[0].rows;
  EXPECT_EQ(fast.solved_again, 3);
  BatchSpec with_density = Spec(Entry::kState);
  with_density.log_density = LogDensity::kStepMap;
  const BatchResult dense = Together(with_density, {segment})[0].rows;
  EXPECT_EQ(dense.solved_again, 3);
  const BatchResult exact = EngineTest::Run({.model = model_,
                                             .correction = correction_,
                                             .plan = Hypersolved(Method::kHeun, 2),
                                             .entry = Entry::kState,
                                             .direction = Direction::kNoiseToData},
                                            rows);
  EXPECT_EQ(fast.status, exact.status);
  for (const int64_t row : {3, 64}) {
    EXPECT_NEAR(Number(fast.state, 2 * row) / Number(exact.state, 2 * row), 1.0, 1e-5);
  }
}

TEST_P(FusedEngineTest, WhatItCannotRunIsRefusedInWords) {
  BatchSpec spec = Spec(Entry::kNoise);
  spec.correction = nullptr;
  spec.method = {.method = Method::kDopri5};
  spec.stepping = Stepping::kErrorControlled;
  const absl::Status adaptive = runtime_->StartRun(spec, 1).status();
  EXPECT_EQ(adaptive.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(adaptive.message()), HasSubstr("tier exact only"));
  ModelSpec wide = fixture::FusedFlowSpec({TanhLayer{}});
  wide.field = fixture::Mlp({2, 200, 2}, {TanhLayer{}});
  spec = Spec(Entry::kNoise);
  spec.correction = nullptr;
  spec.model = fixture::RandomModel(wide, 1);
  const absl::Status too_wide = runtime_->StartRun(spec, 1).status();
  EXPECT_EQ(too_wide.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(too_wide.message()), HasSubstr("200"));
  spec.tier = Tier::kExact;
  EXPECT_EQ(runtime_->StartRun(spec, 1)->choice.engine, "readable");
}

TEST_P(FusedEngineTest, AModelIsPackedAgainAfterAnotherTookItsPlace) {
  for (int i = 0; i < 3; ++i) {
    const auto model = fixture::RandomModel(fixture::FusedFlowSpec({TanhLayer{}}), 7 + i);
    const HostTensor rows = Float(NormalRows(16, {2}, 11));
    PlannedSolve solve{.model = model, .plan = Fixed(Method::kEuler, 1), .entry = Entry::kState};
    solve.tier = Tier::kFast;
    const BatchResult fast = EngineTest::Run(solve, rows);
    solve.tier = Tier::kDouble;
    EXPECT_LT(RelativeError(fast.state, EngineTest::Run(solve, rows).state, rows), 2e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedEngineTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
