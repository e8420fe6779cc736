// Log-densities in many dimensions: how many probes a call gets, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/registry/served_model.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const CallLimits kLimits = LimitsWith({.request_rows_max = 1000, .chunk_rows_default = 64});

// Images [3, 5, 5] of 75 numbers.
std::shared_ptr<ServedModel> ServedImageFlow() {
  ModelSpec spec{.kind = ModelKind::kFlow, .direction = Direction::kNoiseToData};
  spec.input.shape = {3, 5, 5};
  spec.field = {{Conv2dLayer{.in = 3, .out = 3}}};
  auto served = std::make_shared<ServedModel>();
  served->name = "images";
  served->model = fixture::RandomModel(spec, 1);
  served->spec_json = PrintModelSpec(spec);
  return served;
}

TEST(Probes, ADensityInManyDimensionsHasSome) {
  SampleAsk ask{.rows = 3, .seed = 2, .first_row = 10, .log_density = true};
  ask.terms.probe_seed = 9;
  const auto prepared = Prepare(ask, ServedImageFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.log_density, LogDensity::kHutchinson);
  EXPECT_EQ(prepared->work.spec.probes, kProbesDefault);
  EXPECT_EQ(prepared->work.segment.probe_seed, 9u);
  EXPECT_EQ(prepared->work.segment.first_row, 10u);
  EXPECT_EQ(prepared->work.bytes, 3 * (75 * 4 + 2 * 8));
  EXPECT_EQ(InfoOf(*prepared, "id").probes, kProbesDefault);
  const int64_t with_eight = prepared->work.macs;
  ask.terms.probes = 26;
  EXPECT_EQ(Prepare(ask, ServedImageFlow(), kLimits)->work.macs, 3 * with_eight);
  ask.log_density = false;
  EXPECT_EQ(Prepare(ask, ServedImageFlow(), kLimits)->work.spec.probes, 0);
}

TEST(Probes, AreNoneInFewDimensions) {
  SampleAsk ask{.rows = 3, .log_density = true};
  ask.terms.probes = 32;
  const auto prepared = Prepare(ask, ServedTinyFlow(), kLimits);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->work.spec.log_density, LogDensity::kDivergence);
  EXPECT_EQ(prepared->work.spec.probes, 0);
}

TEST(Probes, WhatHasNoEstimateIsRefusedInWords) {
  SampleAsk ask{.rows = 3, .log_density = true};
  const auto refused = [&](absl::StatusCode code, const std::string& words) {
    const absl::Status status = Prepare(ask, ServedImageFlow(), kLimits).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  for (const int64_t wrong : {int64_t{1}, int64_t{65}, int64_t{-1}}) {
    ask.terms.probes = wrong;
    refused(absl::StatusCode::kInvalidArgument, "is not within [2, 64]; 0 asks for 8");
  }
  ask.terms.probes = 0;
  for (const char* plan : {"learned:2", "hyper_heun:2"}) {
    ask.terms.plan = ParsePlan(plan);
    refused(absl::StatusCode::kFailedPrecondition,
            "exact and ends at 64 dimensions; the model has 75");
  }
  LogProbAsk gradient{.inputs = AskedRows(TensorView{}), .gradient = true};
  const HostTensor rows = HostTensor::Zeros(Dtype::kF32, {1, 3, 5, 5});
  gradient.inputs = rows.view();
  gradient.terms.plan = ParsePlan("rk4:2");
  const auto exact = Prepare(gradient, ServedImageFlow(), kLimits);
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_EQ(exact->work.spec.log_density, LogDensity::kDivergence) << "engines refuse it";
}

TEST(Probes, TheStandardErrorIsOfEachRow) {
  WorkResult result;
  result.rows.status = {RowStatus::kConverged, RowStatus::kStepLimit};
  result.rows.log_density = HostTensor::Zeros(Dtype::kF64, {2});
  result.rows.log_density_error = {0.25, std::numeric_limits<double>::quiet_NaN()};
  const LogProbAnswer answer = MakeAnswer(LogProbAsk(), *ServedImageFlow(), {}, std::move(result));
  ASSERT_EQ(answer.info.log_density_error.size(), 2u);
  EXPECT_EQ(answer.info.log_density_error[0], 0.25);
}

}  // namespace
}  // namespace hyperserve
