// The gate's measurement on the real engine, against closed forms (tests/testing/model_fixture.h).
#include "server/registry/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/candidate.h"
#include "server/registry/gate_decision.h"
#include "server/registry/gate_steps.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using fixture::CorrectionOptions;
using fixture::LinearModel;

class GateTest : public ::testing::Test {
 protected:
  // The correction as it is read back from a folder, with its probe.
  Candidate Correction(const LinearModel& fixture, const Model& model,
                       const CorrectionOptions& options) {
    const std::string folder = temporary_.path() + "/" + PrintMethod(options.method);
    const auto number = WriteGeneration(folder, fixture::TinyCorrection(fixture, options));
    EXPECT_TRUE(number.ok()) << number.status();
    const auto candidate =
        LoadCandidate(folder + "/" + std::to_string(*number), *number, options.method, model);
    EXPECT_TRUE(candidate.ok()) << candidate.status();
    return *candidate;
  }
  EngineGate Gate(std::function<bool()> cancelled = [] { return false; }) {
    return EngineGate(runtime_.get(), std::move(cancelled));
  }

  const TemporaryFolder temporary_;
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
};

// One Euler or Heun step of z' = a z, in double: the truncated exponential.
std::vector<double> ClassicalSteps(const LinearModel& model, double sign, int order, int steps,
                                   std::vector<double> z) {
  const int64_t n = model.dimension;
  const double eps = sign / steps;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> term = z;
    for (int k = 1; k <= order; ++k) {
      std::vector<double> next(n, 0.0);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) next[i] += eps / k * model.a[i * n + j] * term[j];
      }
      term = next;
      for (int64_t i = 0; i < n; ++i) z[i] += term[i];
    }
  }
  return z;
}

TEST_F(GateTest, BaseErrorIsTheClosedFormsInBothDirections) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  const HostTensor probe = fixture::TinyInputs(flow, 16);
  EngineGate gate = Gate();
  for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
    CorrectionOptions options = fixture::DefaultCorrection(flow);
    options.direction = direction;
    const Candidate candidate = Correction(flow, *model, options);
    const auto measured = gate.Measure({.model = model,
                                        .candidate = candidate.generation->correction,
                                        .probes = {candidate.probe}});
    ASSERT_TRUE(measured.ok()) << measured.status();
    ASSERT_EQ(measured->size(), 4u);
    const double sign = direction == flow.direction ? 1.0 : -1.0;
    for (const GateMeasurement& at : *measured) {
      double expected = 0.0;
      for (int row = 0; row < 16; ++row) {
        const std::vector<double> z = {probe.as<float>()[2 * row], probe.as<float>()[2 * row + 1]};
        const auto exact = fixture::ExactSolution(flow, direction, z, 1.0);
        const auto heun = ClassicalSteps(flow, sign, 2, at.steps, z);
        expected += std::hypot(heun[0] - exact[0], heun[1] - exact[1]) /
                    std::hypot(exact[0], exact[1]) / 16;
      }
      EXPECT_NEAR(at.base_error, expected, 1e-5) << at.steps;
      EXPECT_LT(at.candidate_error, 0.4 * at.base_error) << at.steps;
      EXPECT_FALSE(at.active_error.has_value());
    }
    EXPECT_LT((*measured)[1].candidate_error, 2e-6);  // exact at K = 2
  }
}

TEST_F(GateTest, ScaleHalvesTheErrorAtItsK) {
  const LinearModel classifier = fixture::TinyClassifier();
  const auto model = *Model::FromBytes(classifier.model_json, classifier.weights);
  CorrectionOptions options;
  options.scale = 0.5;
  options.steps = {2};
  const Candidate half = Correction(classifier, *model, options);
  options.scale = 1.0;
  const Candidate exact = Correction(classifier, *model, options);
  options.scale = 0.0;
  const Candidate zero = Correction(classifier, *model, options);
  EngineGate gate = Gate();
  const auto measured = *gate.Measure({.model = model,
                                       .candidate = half.generation->correction,
                                       .active = exact.generation->correction,
                                       .probes = {half.probe}});
  EXPECT_NEAR(measured[0].candidate_error / measured[0].base_error, 0.5, 0.05);
  EXPECT_LT(*measured[0].active_error, 2e-6);
  const auto nothing = *gate.Measure({.model = model,
                                      .candidate = zero.generation->correction,
                                      .active = exact.generation->correction,
                                      .probes = {half.probe, half.probe}});
  EXPECT_NEAR(nothing[0].candidate_error, nothing[0].base_error, 1e-7);
  EXPECT_NEAR(nothing[0].base_error, measured[0].base_error, 1e-7);
}

TEST_F(GateTest, AnActiveThatWouldNotBeServedIsNoRival) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  CorrectionOptions options = fixture::DefaultCorrection(flow);
  const Candidate candidate = Correction(flow, *model, options);
  options.steps = {1, 2};
  const Candidate narrow = Correction(flow, *model, options);
  EngineGate gate = Gate();
  const auto measured = *gate.Measure({.model = model,
                                       .candidate = candidate.generation->correction,
                                       .active = narrow.generation->correction,
                                       .probes = {candidate.probe}});
  EXPECT_TRUE(measured[0].active_error.has_value());
  EXPECT_TRUE(measured[1].active_error.has_value());
  EXPECT_FALSE(measured[3].active_error.has_value());  // K = 4 lies outside its range
}

TEST_F(GateTest, MeasuresWhatIsServedAndNotOnlyWhatIsClaimed) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  const auto steps_of = [&](std::vector<int> claims) {
    CorrectionOptions options = fixture::DefaultCorrection(flow);
    options.steps = std::move(claims);
    const Candidate candidate = Correction(flow, *model, options);
    return GateSteps({.model = model, .candidate = candidate.generation->correction});
  };
  EXPECT_THAT(steps_of({1, 4}), ::testing::ElementsAre(1, 2, 3, 4));
  const std::vector<int> many = steps_of({1, 33, 500});
  EXPECT_THAT(many, ::testing::IsSupersetOf({1, 2, 31, 32, 33, 500}));
  EXPECT_LT(many.size(), 50u);
}

TEST_F(GateTest, WhatIsServedIsNotTakenAwayUnlessThePublisherSaysSo) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  CorrectionOptions options = fixture::DefaultCorrection(flow);
  const auto active = Correction(flow, *model, options).generation->correction;
  const auto refusal = [&](bool may_narrow) {
    const Candidate candidate = Correction(flow, *model, options);
    GateInput input = {.model = model,
                       .candidate = candidate.generation->correction,
                       .active = active,
                       .probes = {candidate.probe},
                       .may_narrow = may_narrow};
    return std::string(Gate().Measure(input).status().message());
  };
  EXPECT_EQ(refusal(false), "");
  options.steps = {1, 4};
  EXPECT_THAT(refusal(false), ::testing::HasSubstr("claims K = 2, this one does not"));
  EXPECT_EQ(refusal(true), "");
  options.steps = {1, 2};
  EXPECT_THAT(refusal(false), ::testing::HasSubstr("allow_narrower"));
  options.direction = Direction::kDataToNoise;
  EXPECT_THAT(refusal(false), ::testing::HasSubstr("runs noise_to_data"));
}

// Tables that hold classical plans: their rivals, and the error of each, are known.
TEST_F(GateTest, LearnedSolversMeetTheBestClassicalPlanOfTheirCost) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  const auto learned = [&](const std::vector<FixedPlan>& plans) {
    const auto bytes =
        fixture::LearnedFrom(plans, Coefficients::kChannel, *model, Direction::kNoiseToData);
    return *Hypersolver::FromBytes(bytes.hypersolver_json, bytes.weights, *model);
  };
  const auto plan = [](Method method, int steps) {
    return FixedPlan{.method = {.method = method}, .steps = steps};
  };
  const GateInput input = {.model = model,
                           .candidate = learned({plan(Method::kEuler, 1), plan(Method::kEuler, 2),
                                                 plan(Method::kRk4, 1), plan(Method::kAb2, 6)}),
                           .active = learned({plan(Method::kEuler, 1), plan(Method::kMidpoint, 1)}),
                           .probes = {{.x = fixture::TinyInputs(flow, 16), .condition = {}}}};
  EngineGate gate = Gate();
  const auto measured = *gate.Measure(input);
  ASSERT_EQ(measured.size(), 4u);
  EXPECT_EQ(measured[0].base_plan, "euler:1");
  EXPECT_NEAR(measured[0].candidate_error, measured[0].base_error, 1e-6);
  // Every second-order method is one polynomial on a linear field.
  EXPECT_LT(measured[1].base_error, 0.8 * measured[1].candidate_error);
  EXPECT_NEAR(*measured[1].active_error, measured[1].base_error, 1e-6);
  EXPECT_EQ(measured[2].base_plan.substr(0, 3), "rk4");
  EXPECT_NEAR(measured[2].candidate_error, measured[2].base_error, 1e-6);
  EXPECT_FALSE(measured[2].active_error.has_value());
  EXPECT_GT(measured[3].candidate_error, measured[3].base_error);

  const auto dropped = gate.Measure({.model = model,
                                     .candidate = input.active,
                                     .active = input.candidate,
                                     .probes = input.probes});
  EXPECT_EQ(dropped.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(dropped.status().message(), ::testing::HasSubstr("learned:4"));
}

// The gate solves the probe of a conditional model under its own conditions.
TEST_F(GateTest, AConditionalModelIsMeasuredUnderTheProbesConditions) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const auto candidate =
      fixture::RandomHypersolver(fixture::ConditionalCorrectionSpec(), *model, 2);
  Probe probe{.x = fixture::TinyInputs(fixture::TinyFlow(), 16),
              .condition = HostTensor::Zeros(Dtype::kF32, {16, 3})};
  const auto base_error = [&] {
    EngineGate gate = Gate();
    const auto measured = gate.Measure({.model = model, .candidate = candidate, .probes = {probe}});
    EXPECT_TRUE(measured.ok()) << measured.status();
    return measured.ok() ? measured->front().base_error : 0.0;
  };
  const double at_zero = base_error();
  for (float& number : probe.condition.as<float>()) number = 2.0f;
  EXPECT_GT(at_zero, 0.0);
  EXPECT_NE(base_error(), at_zero);
}

TEST_F(GateTest, AProbeWithoutTheConditionsIsRefused) {
  const auto model = fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  HypersolverSpec spec = fixture::ConditionalCorrectionSpec();
  spec.base_digest = model->base_digest();
  const std::vector<double> points(32, 0.5), conditions(48, 1.0);
  GenerationFiles files = {
      {"hypersolver.json", PrintHypersolverSpec(spec)},
      {"weights.safetensors", fixture::RandomWeights(ExpectedTensors(spec.net, "net"), 3)}};
  const auto load = [&](const std::vector<fixture::NamedTensor>& probe) {
    files["probe.safetensors"] = fixture::SafetensorsOf(probe);
    const std::string folder = temporary_.path() + "/conditional";
    const int64_t number = WriteGeneration(folder, files).value();
    return LoadCandidate(folder + "/" + std::to_string(number), number, spec.method, *model);
  };
  EXPECT_THAT(load({{"x", {16, 2}, points}}).status().message(), ::testing::HasSubstr("condition"));
  EXPECT_THAT(load({{"x", {16, 2}, points}, {"condition", {24, 2}, conditions}}).status().message(),
              ::testing::HasSubstr("condition is F32 [24, 2], wanted F32 [16, 3]"));
  const auto whole = load({{"x", {16, 2}, points}, {"condition", {16, 3}, conditions}});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->probe.condition.shape, (Shape{16, 3}));
}

TEST_F(GateTest, EndsWhereItIsCancelled) {
  const LinearModel flow = fixture::TinyFlow();
  const auto model = *Model::FromBytes(flow.model_json, flow.weights);
  const Candidate candidate = Correction(flow, *model, fixture::DefaultCorrection(flow));
  EngineGate gate = Gate([] { return true; });
  const auto measured = gate.Measure(
      {.model = model, .candidate = candidate.generation->correction, .probes = {candidate.probe}});
  EXPECT_EQ(measured.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace hyperserve
