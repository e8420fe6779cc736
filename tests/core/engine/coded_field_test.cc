// A field that is code, solved: what it answers, and what it is refused for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/testing/package_fixture.h"
#include "tests/testing/planned_solve.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

HostTensor Rows(int64_t rows) {
  HostTensor z = HostTensor::Zeros(Dtype::kF32, {rows, 2});
  for (int64_t i = 0; i < 2 * rows; ++i) z.as<float>()[static_cast<size_t>(i)] = 0.5F * (i % 7) - 1;
  return z;
}

class CodedFieldTest : public testing::Test {
 protected:
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
};

TEST_F(CodedFieldTest, IsSolvedLikeAnyField) {
  const PlannedSolve solve{
      .model = fixture::CodedFlow(), .plan = Dopri5(1e-6), .entry = Entry::kState};
  for (const int64_t rows : {1, 3, 32, 200}) {
    const HostTensor z = Rows(rows);
    const auto result = Solve(*runtime_, solve, z.view());
    ASSERT_TRUE(result.ok()) << result.status();
    for (size_t i = 0; i < z.as<float>().size(); ++i) {
      EXPECT_NEAR(result->state.as<float>()[i], z.as<float>()[i] * std::exp(-1.5), 2e-6);
    }
    EXPECT_EQ(result->macs[0], 4 * result->nfe[0]);
  }
}

TEST_F(CodedFieldTest, RunsAgainstItsDirection) {
  PlannedSolve solve{.model = fixture::CodedFlow(),
                     .plan = Dopri5(1e-6),
                     .entry = Entry::kState,
                     .direction = Direction::kDataToNoise};
  const auto result = Solve(*runtime_, solve, Rows(2).view());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->state.as<float>()[0], -std::exp(1.5), 1e-4);
}

// dz/ds = c - (1 + s) z, by one step of midpoint, whose slope is taken at s = 1/2.
TEST_F(CodedFieldTest, SeesTheConditionOfEachRow) {
  HostTensor condition = HostTensor::Zeros(Dtype::kF32, {3, 1});
  for (size_t i = 0; i < 3; ++i) condition.as<float>()[i] = static_cast<float>(i) - 1;
  const PlannedSolve solve{.model = fixture::CodedFlow(1),
                           .plan = Fixed(Method::kMidpoint, 1),
                           .entry = Entry::kState,
                           .condition = condition.view()};
  const HostTensor z = Rows(3);
  const auto result = Solve(*runtime_, solve, z.view());
  ASSERT_TRUE(result.ok()) << result.status();
  for (size_t i = 0; i < 6; ++i) {
    const double c = condition.as<float>()[i / 2], start = z.as<float>()[i];
    const double middle = start + 0.5 * (c - start);
    EXPECT_NEAR(result->state.as<float>()[i], start + c - 1.5 * middle, 1e-6);
  }
}

TEST_F(CodedFieldTest, WhatItDoesNotDoIsRefusedInWords) {
  const std::shared_ptr<const Model> model = fixture::CodedFlow();
  const auto refusal = [&](auto change) {
    BatchSpec spec{.model = model, .method = {Method::kRk4}, .entry = Entry::kState};
    change(spec);
    const absl::Status status = CheckSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](BatchSpec& spec) { spec.tier = Tier::kDouble; }),
              HasSubstr("computes in float32: no tier double"));
  EXPECT_THAT(refusal([](BatchSpec& spec) { spec.log_density = LogDensity::kStepMap; }),
              HasSubstr("no derivatives, so no log-density"));
  EXPECT_THAT(refusal([](BatchSpec& spec) { spec.derivative = Derivative::kVjp; }),
              HasSubstr("has no derivatives"));
  const BatchSpec sealed{.model = fixture::CodedFlow(0, FieldCode::kSealed),
                         .method = {Method::kRk4},
                         .entry = Entry::kState};
  EXPECT_THAT(std::string(CheckSpec(sealed).message()), HasSubstr("read, but not loaded"));
}

}  // namespace
}  // namespace hyperserve
