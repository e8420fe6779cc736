#include "server/calls/solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/limits.h"
#include "server/calls/rows.h"
#include "tests/server/calls/served_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const CallLimits kLimits = LimitsWith({.save_at_max = 3});
const std::vector<float> kOnes(8, 1.0f);

TensorView Ones(Shape shape) {
  const auto numbers = static_cast<size_t>(*ElementCount(shape));
  return {.dtype = Dtype::kF32,
          .shape = std::move(shape),
          .bytes = std::as_bytes(std::span(kOnes).first(numbers))};
}

void ExpectRefused(const SolveAsk& ask, const std::string& words,
                   const CallLimits& limits = kLimits) {
  const absl::Status status = Prepare(ask, ServedTinyClassifier(), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(PrepareSolve, OwnSpanAndSaveAt) {
  const auto served = ServedTinyClassifier();
  SolveAsk ask{.state = Ones({2, 4}), .span = {{0.25, 0.75}}, .save_at = {0.25, 0.5}};
  const auto prepared = Prepare(ask, served, kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.span, (std::array<double, 2>{0.25, 0.75}));
  EXPECT_EQ(prepared->work.spec.save_at, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(prepared->work.spec.entry, Entry::kState);
  EXPECT_TRUE(prepared->work.spec.want_state);
  EXPECT_EQ(prepared->work.bytes, 2 * 4 * 4 * (1 + 1 + 2));  // start, end, two saved
  // The model's own span, spelled out, is no plan of its own.
  ask.span = {0, 1};
  EXPECT_EQ(Prepare(ask, served, kLimits)->work.spec.span, std::nullopt);
}

TEST(PrepareSolve, ADerivativeIsWorkOfItsOwnCost) {
  SolveAsk ask{.state = Ones({2, 4})};
  ask.terms.plan = ParsePlan("euler:2").value();
  const Work plain = Prepare(ask, ServedTinyClassifier(), kLimits)->work;
  ask.vjp = SolveAsk::Vjp{.cotangent = Ones({2, 4})};
  const auto pulled = Prepare(ask, ServedTinyClassifier(), kLimits);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->work.spec.derivative, Derivative::kVjp);
  EXPECT_EQ(pulled->work.macs, 3 * plain.macs);
  // The cotangent, the product and, in double, the state at each of two steps.
  EXPECT_EQ(pulled->work.bytes, plain.bytes + 2 * (4 * 4 + 4 * 4 + 2 * 4 * 8));
  EXPECT_EQ(pulled->work.segment.vector.shape, (Shape{2, 4}));
  ask.vjp.reset();
  ask.jvp = SolveAsk::Jvp{.start_tangent = Ones({2, 4}), .condition_tangent = std::nullopt};
  const auto pushed = Prepare(ask, ServedTinyClassifier(), kLimits);
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->work.spec.derivative, Derivative::kJvp);
  EXPECT_EQ(pushed->work.macs, 2 * plain.macs);
}

TEST(PrepareSolve, ADerivativeWithoutItsVectorsIsRefused) {
  SolveAsk ask{.state = Ones({1, 4})};
  ask.terms.plan = ParsePlan("euler:2").value();
  ask.vjp.emplace();
  ExpectRefused(ask, "cotangent: SolveVjp wants one of z(s1) for each row");
  ask.vjp->cotangent = Ones({2, 4});
  ExpectRefused(ask, "cotangent: 2 of them for 1 rows; send one for each row");
  ask.vjp->cotangent = Ones({1, 4});
  ask.save_at = {0.5};
  ExpectRefused(ask, "send neither save_at nor partial_states");
  ask.save_at.clear();
  ask.vjp.reset();
  ask.jvp.emplace();
  ExpectRefused(ask, "neither start_tangent nor condition_tangent is set");
  ask.jvp->condition_tangent = Ones({1, 4});
  ExpectRefused(ask, "condition_tangent: model 'tiny_classifier' has no condition");
}

TEST(PrepareSolve, ARegressorGivesItsOutputs) {
  SolveAsk ask{.state = Ones({2, 4})};
  const auto prepared = Prepare(ask, ServedTinyRegressor(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_TRUE(prepared->work.spec.want_outputs);
  const Work plain = Prepare(ask, ServedTinyClassifier(), kLimits)->work;
  EXPECT_FALSE(plain.spec.want_outputs);
  EXPECT_EQ(prepared->work.bytes, plain.bytes + 2 * 3 * 4);
  ask.terms.plan = ParsePlan("euler:2").value();
  ask.vjp = SolveAsk::Vjp{.cotangent = Ones({2, 4})};
  EXPECT_FALSE(Prepare(ask, ServedTinyRegressor(), kLimits)->work.spec.want_outputs);
}

TEST(PrepareSolve, ATrajectoryIsSavedAtItsDepthsUnlessTheRequestNamesOthers) {
  SolveAsk ask{.state = Ones({2, 4})};
  const auto saved = [&] {
    return Prepare(ask, ServedTinyTrajectory(), kLimits).value().work.spec.save_at;
  };
  EXPECT_EQ(saved(), (std::vector<double>{0.25, 1}));
  ask.span = {{0, 0.5}};
  EXPECT_TRUE(saved().empty());
  ask.save_at = {0.5};
  EXPECT_EQ(saved(), std::vector<double>{0.5});
  ask = {.state = Ones({2, 4})};
  ask.terms.plan = ParsePlan("ab2:4").value();
  EXPECT_EQ(Prepare(ask, ServedTinyTrajectory(), kLimits).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ask.terms.plan = ParsePlan("euler:2").value();
  ask.vjp = SolveAsk::Vjp{.cotangent = Ones({2, 4})};
  EXPECT_TRUE(saved().empty()) << "a derivative is that of the end";
}

TEST(PrepareSolve, FlowsRunTheFieldsOwnDirection) {
  const auto prepared = Prepare(SolveAsk{.inputs = Ones({1, 2})}, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.direction, Direction::kNoiseToData);
  EXPECT_EQ(prepared->work.spec.entry, Entry::kInput);
}

TEST(PrepareSolve, FlowsRunInTheDirectionThatIsAsked) {
  SolveAsk ask{.inputs = Ones({1, 2}), .direction = "data_to_noise"};
  EXPECT_EQ(Prepare(ask, ServedTinyFlow(), kLimits)->work.spec.direction, Direction::kDataToNoise);
  ask.direction = "noise_to_data";
  ask.terms.plan = ParsePlan("hyper_heun:2");
  EXPECT_TRUE(Prepare(ask, ServedTinyFlow(), kLimits).ok());
  ask.direction = "data_to_noise";  // the correction was trained for the other
  EXPECT_EQ(Prepare(ask, ServedTinyFlow(), kLimits).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ask.direction = "forward";
  const auto unknown = Prepare(ask, ServedTinyFlow(), kLimits).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("known: noise_to_data, data_to_noise"));
  ExpectRefused({.state = Ones({1, 4}), .direction = "noise_to_data"}, "known: forward");
}

TEST(PrepareSolve, ASpanWithoutLengthIsTakenUnderAnyPlan) {
  SolveAsk ask{.inputs = Ones({1, 2}), .span = {{0.5, 0.5}}};
  for (const char* plan : {"rk4:3", "dopri5:1e-3", "hyper_heun:2"}) {
    ask.terms.plan = ParsePlan(plan);
    const auto prepared = Prepare(ask, ServedTinyFlow(), kLimits);
    ASSERT_TRUE(prepared.ok()) << plan << ": " << prepared.status();
    EXPECT_GE(prepared->work.evaluations, 1);
  }
}

TEST(PrepareSolve, Refusals) {
  ExpectRefused({}, "neither inputs nor state");
  SolveAsk ask{.state = Ones({1, 4})};
  ask.span = {1, 0};
  ExpectRefused(ask, "begin <= end");
  ask.span = {-1e308, 1e308};
  ExpectRefused(ask, "span: [-1e+308, 1e+308]; finite numbers");
  ask.span = {1, std::numeric_limits<double>::infinity()};
  ExpectRefused(ask, "finite");
  ask.span.reset();
  ask.save_at = {0.5, 0.5};
  ExpectRefused(ask, "save_at[1]: 0.5");
  ask.save_at[1] = 1.5;
  ExpectRefused(ask, "save_at[1]: 1.5");
  ask.save_at[1] = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(ask, "save_at[1]: nan");
  ask.save_at = {0.5, 0.6, 0.8, 0.9};
  ExpectRefused(ask, "save_at_max = 3");
  ask.save_at.clear();
  CallLimits limits = kLimits;
  limits.request_macs_max = 1;
  ExpectRefused(ask, "MACs", limits);
}

WorkResult TwoRows(RowStatus second) {
  WorkResult result{.engine = "e", .device = "cpu"};
  result.rows.status = {RowStatus::kConverged, second};
  result.rows.depth = {1, 0.25};
  result.rows.state = TensorOf(std::vector<double>{0, 9}, {2, 1}, Dtype::kF32);
  return result;
}

TEST(SolveAnswer, HalfSolvedStatesOnlyWhereAsked) {
  const auto served = ServedTinyClassifier();
  const SolveAnswer blank = MakeAnswer(SolveAsk{}, *served, {}, TwoRows(RowStatus::kStepLimit));
  EXPECT_EQ(blank.state.as<float>()[0], 0.0f);
  EXPECT_TRUE(std::isnan(blank.state.as<float>()[1]));
  EXPECT_TRUE(blank.saved.bytes.empty());
  const SolveAnswer partial =
      MakeAnswer(SolveAsk{.partial_states = true}, *served, {}, TwoRows(RowStatus::kStepLimit));
  EXPECT_EQ(partial.state.as<float>()[1], 9.0f);
  EXPECT_EQ(partial.stopped_at, (std::vector<double>{1, 0.25}));
}

}  // namespace
}  // namespace hyperserve
