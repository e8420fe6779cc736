// Conditions on an engine: a row gets the answer of its own condition, bit for bit as alone on a
// CPU, and a condition of a linear layer is nothing but a bias.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/conditions/condition_fixture.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

TEST_P(ConditionTest, ABatchIsALoopOfSingleRequests) {
  for (PlannedSolve solve : Solves()) {
    solve.condition = View(conditions_);
    ExpectALoop(solve);
  }
}

TEST_P(ConditionTest, OneForAllRowsIsThatOneForEach) {
  PlannedSolve solve = Of(Fixed(Method::kRk4, 2));
  const TensorView one = RowsOf(View(conditions_), 0, 1);
  HostTensor repeated;
  for (int i = 0; i < 7; ++i) AppendRows(one, repeated);
  solve.condition = one;
  const BatchResult of_all = Run(solve, rows_);
  solve.condition = View(repeated);
  EXPECT_EQ(Run(solve, rows_).state.bytes, of_all.state.bytes);
  solve.condition = View(conditions_);
  EXPECT_NE(Run(solve, rows_).state.bytes, of_all.state.bytes);
}

// f(s, z, c) = W2 tanh(W1 [z, c, s] + b1) + b2 under one condition is a field without condition, of
// the bias b1 + W1c c.
TEST_P(ConditionTest, AConditionIsABias) {
  constexpr int64_t kWidth = 8;
  ModelSpec spec = fixture::FlowSpec();
  const Layer out = {LinearLayer{.in = kWidth, .out = 2}};
  spec.field = {{DepthCatLayer{}}, {LinearLayer{.in = 3, .out = kWidth}}, {TanhLayer{}}, out};
  ModelSpec conditional = spec;
  conditional.condition = {3};
  conditional.field = {{ConditionCatLayer{.features = 3}},
                       {DepthCatLayer{}},
                       {LinearLayer{.in = 6, .out = kWidth}},
                       {TanhLayer{}},
                       out};
  const HostTensor w1 = NormalRows(kWidth, {6}, 1), b1 = NormalRows(1, {kWidth}, 2);
  const HostTensor w2 = NormalRows(2, {kWidth}, 3), b2 = NormalRows(1, {2}, 4);
  HostTensor w1_plain = HostTensor::Zeros(Dtype::kF64, {kWidth, 3}), b1_plain = b1;
  for (int64_t i = 0; i < kWidth; ++i) {
    const auto at = [&](int64_t j) { return Number(w1, 6 * i + j); };
    const double kept[] = {at(0), at(1), at(5)};
    std::copy(kept, kept + 3, w1_plain.as<double>().begin() + 3 * i);
    for (int64_t j = 0; j < 3; ++j) {
      b1_plain.as<double>()[static_cast<size_t>(i)] += at(2 + j) * Number(conditions_, j);
    }
  }
  const auto vector = [](const HostTensor& one) {
    TensorView view = View(one);
    view.shape = {one.shape[1]};
    return view;
  };
  const auto model = [&](const ModelSpec& of, const std::string& first, const HostTensor& weight,
                         const HostTensor& bias) {
    const std::string last = first == "field.1" ? "field.3" : "field.4";
    return Model::FromBytes(PrintModelSpec(of),
                            SerializeSafetensors({{first + ".weight", View(weight)},
                                                  {first + ".bias", vector(bias)},
                                                  {last + ".weight", View(w2)},
                                                  {last + ".bias", vector(b2)}}))
        .value();
  };
  PlannedSolve with{.model = model(conditional, "field.2", w1, b1),
                    .plan = Dopri5(1e-8),
                    .tier = Tier::kDouble,
                    .entry = Entry::kState,
                    .direction = Direction::kDataToNoise,
                    .log_density = LogDensity::kDivergence};
  PlannedSolve without = with;
  without.model = model(spec, "field.1", w1_plain, b1_plain);
  with.condition = RowsOf(View(conditions_), 0, 1);
  for (const LogDensity density : {LogDensity::kDivergence, LogDensity::kStepMap}) {
    with.log_density = without.log_density = density;
    if (density == LogDensity::kStepMap) with.plan = without.plan = Fixed(Method::kHeun, 3);
    const BatchResult found = Run(with, rows_), wanted = Run(without, rows_);
    for (int64_t i = 0; i < 14; ++i) {
      EXPECT_NEAR(Number(found.state, i), Number(wanted.state, i), 1e-11);
      EXPECT_NEAR(Number(found.log_density, i / 2), Number(wanted.log_density, i / 2), 1e-11);
    }
  }
}

TEST_P(ConditionTest, WhatDoesNotFitIsRefusedInWords) {
  PlannedSolve solve = Of(Fixed(Method::kEuler, 1));
  const auto message = [&] { return std::string(TryRun(solve, rows_).status().message()); };
  EXPECT_THAT(message(), HasSubstr("condition: shape wanted [7, 3] or [1, 3], found []"));
  const HostTensor five = NormalRows(5, {3}, 1), bytes = HostTensor::Zeros(Dtype::kU8, {7, 3});
  solve.condition = View(five);
  EXPECT_THAT(message(), HasSubstr("found [5, 3]"));
  solve.condition = View(bytes);
  EXPECT_THAT(message(), HasSubstr("condition: dtype wanted F32 or F64, found U8"));
  solve.condition = View(conditions_);
  solve.model = fixture::RandomModel(fixture::FlowSpec(), 1);
  EXPECT_THAT(message(), HasSubstr("a condition for a model that has none"));
  HypersolverSpec other = fixture::ConditionalCorrectionSpec();
  std::get<ConditionCatLayer>(other.net[0].kind).features = 4;
  std::get<LinearLayer>(other.net[1].kind).in = 12;
  other.base_digest = model_->base_digest();
  EXPECT_THAT(
      std::string(
          Hypersolver::FromBytes(PrintHypersolverSpec(other), "", *model_).status().message()),
      HasSubstr("net[0].condition_cat: reads 4 features, condition.shape is [3]"));
}

INSTANTIATE_TEST_SUITE_P(Devices, ConditionTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
