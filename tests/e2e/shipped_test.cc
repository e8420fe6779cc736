// The daemon on the models of this repository, under every plan that they were calibrated on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/deadline.h"
#include "client/wire_tensor.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

Deadline Soon() { return Deadline::In(kSoon); }

class Shipped : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& models) {
    for (const std::string& model : models) {
      std::filesystem::copy(absl::StrCat(fixture::ShippedModels(), "/", model),
                            absl::StrCat(repository_.path(), "/", model),
                            std::filesystem::copy_options::recursive);
    }
    auto daemon = Daemon::Start(repository_.path());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<Client>(daemon_->client_options());
  }

  std::vector<std::string> PlansOf(const std::string& model) {
    const auto told = client_->GetModel(model, Soon());
    EXPECT_TRUE(told.ok()) << told.status();
    std::vector<std::string> plans = {"default"};
    for (const v1::PlanInfo& plan : told->plans()) plans.push_back(plan.plan());
    return plans;
  }

  v1::SampleRequest Ask(const std::string& model, const std::string& plan, int64_t rows) {
    v1::SampleRequest request;
    request.mutable_options()->set_model(model);
    request.mutable_options()->mutable_plan()->set_text(plan);
    const auto told = client_->GetModel(model, Soon());
    if (told->model().condition_shape_size() > 0) {
      *request.mutable_options()->mutable_condition() =
          ToWire(HostTensor::Zeros(Dtype::kF32, {1, told->model().condition_shape(0)}));
    }
    request.set_rows(rows);
    request.set_seed(5);
    request.set_first_row(1000);
    return request;
  }

  std::string Streamed(const v1::SampleRequest& sample) {
    v1::SampleStreamRequest request;
    *request.mutable_sample() = sample;
    request.set_chunk_rows(9);
    std::string samples;
    const auto end = client_->SampleStream(request, Soon(), [&](const v1::SampleChunk& chunk) {
      samples += chunk.samples().data();
      return absl::OkStatus();
    });
    EXPECT_TRUE(end.ok()) << end.status();
    return samples;
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(Shipped, SamplesAreTheSameWhetherTheirDensityIsAskedForOrNot) {
  const std::vector<std::string> models = {"checkerboard", "pinwheel", "rings", "two_moons"};
  ASSERT_NO_FATAL_FAILURE(Start(models));
  int compared = 0;
  for (const std::string& model : models) {
    for (const std::string& plan : PlansOf(model)) {
      if (plan.ends_with("/fast")) continue;  // wants a GPU
      SCOPED_TRACE(absl::StrCat(model, " ", plan));
      v1::SampleRequest request = Ask(model, plan, 20);
      const auto plain = client_->Sample(request, Soon());
      ASSERT_TRUE(plain.ok()) << plain.status();
      const std::string streamed = Streamed(request);
      request.set_log_density(true);
      const auto dense = client_->Sample(request, Soon());
      ASSERT_TRUE(dense.ok()) << dense.status();
      EXPECT_EQ(dense->samples().data(), plain->samples().data());
      EXPECT_EQ(Streamed(request), streamed);
      EXPECT_EQ(streamed, plain->samples().data());
      EXPECT_EQ(dense->info().plan(), plain->info().plan());
      EXPECT_EQ(absl::StrJoin(dense->info().nfe(), " "), absl::StrJoin(plain->info().nfe(), " "));
      EXPECT_GE(dense->info().macs(0), 3 * plain->info().macs(0)) << "two tangents cost";
      request.mutable_options()->set_reply_dtype(v1::DTYPE_F16);
      const auto dense_half = client_->Sample(request, Soon());
      request.set_log_density(false);
      const auto half = client_->Sample(request, Soon());
      ASSERT_TRUE(half.ok() && dense_half.ok()) << half.status() << dense_half.status();
      EXPECT_EQ(dense_half->samples().data(), half->samples().data());
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST_F(Shipped, ThePageOfMetricsStaysBelow100KilobytesWhateverIsAsked) {
  const std::vector<std::string> models = {"checkerboard", "pinwheel", "rings"};
  ASSERT_NO_FATAL_FAILURE(Start(models));
  const std::vector<std::string> others = {
      "euler:7",   "rk3:9",     "hyper_heun:2",      "tsit5:1e-4", "bosh3:1e-2",     "alpha(0.3):2",
      "no_plan:1", "auto:1e-2", "midpoint:4@cosine", "learned:99", "heun_euler:1e-2"};
  size_t asked = 0;
  for (const std::string& model : models) {
    std::vector<std::string> plans = PlansOf(model);
    plans.insert(plans.end(), others.begin(), others.end());
    asked += plans.size();
    for (const std::string& plan : plans) {
      v1::SampleRequest request = Ask(model, plan, 1);
      const auto sample = client_->Sample(request, Soon());
      client_->Sample(request, Deadline::In(std::chrono::microseconds(1))).IgnoreError();
      if (sample.ok()) Streamed(request);
      v1::LogProbRequest score;
      *score.mutable_options() = request.options();
      *score.mutable_inputs() = ToWire(HostTensor::Zeros(Dtype::kF32, {1, 2}));
      client_->LogProb(score, Soon()).IgnoreError();
      v1::SolveRequest solve;
      *solve.mutable_options() = request.options();
      *solve.mutable_state() = score.inputs();
      client_->Solve(solve, Soon()).IgnoreError();
      v1::LogProbGradientRequest gradient;
      *gradient.mutable_options() = request.options();
      *gradient.mutable_inputs() = score.inputs();
      client_->LogProbGradient(gradient, Soon()).IgnoreError();
    }
  }
  EXPECT_GT(asked, 200u);
  const HttpAnswer page = daemon_->Get("/metrics");
  ASSERT_EQ(page.status, 200);
  RecordProperty("bytes", static_cast<int>(page.body.size()));
  EXPECT_LT(page.body.size(), 100'000u);
  for (const std::string& model : models) {
    EXPECT_THAT(page.body, HasSubstr(absl::StrCat("hyperserve_plan_seconds_total{model=\"", model,
                                                  "\",plan=\"learned:")));
    EXPECT_THAT(page.body, HasSubstr(absl::StrCat("hyperserve_plan_seconds_total{model=\"", model,
                                                  "\",plan=\"other\"}")));
  }
}

}  // namespace
}  // namespace hyperserve
