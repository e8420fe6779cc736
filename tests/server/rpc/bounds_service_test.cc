// Bounds of single rows, and plans chosen row by row, over the wire: a learned solver whose tables
// hold classical plans on a linear flow.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/server/rpc/service_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRows = 40;

class BoundsServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetUpNumerics();
    server_ = new TestServer(BatcherOptionsWith(), MakeDeviceRuntime("cpu").value());
    ASSERT_TRUE(fixture::WriteTinyRepository(server_->folder.path()).ok());
    WriteLearned(fixture::TinyFlow());
    server_->Load();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  // learned:2 has a bound and learned:4 both a bound and a small percentile; a row's distance is
  // that from one step of euler.
  static void WriteLearned(const fixture::LinearModel& flow) {
    const auto model = Model::FromBytes(flow.model_json, flow.weights).value();
    const std::vector<FixedPlan> plans = {{.method = {.method = Method::kMidpoint}, .steps = 1},
                                          {.method = {.method = Method::kRk4}, .steps = 1}};
    const auto bytes =
        fixture::LearnedFrom(plans, Coefficients::kChannel, *model, Direction::kNoiseToData);
    Calibration calibration{.base_digest = model->base_digest()};
    calibration.plans.resize(2);
    calibration.plans[0] = {.plan = *ParsePlan("learned:2"), .error_p99 = 1e9, .macs = 50};
    calibration.plans[1] = {.plan = *ParsePlan("learned:4"), .error_p99 = 1e-9, .macs = 80};
    calibration.plans[0].bound = {.factor = 2, .rows = 100, .distances = {0, 1e-9}};
    calibration.plans[1].bound = {.factor = 0.5, .rows = 100, .distances = {0, 1e-9}};
    GenerationFiles files = fixture::TinyCorrection(flow, fixture::DefaultCorrection(flow));
    files["hypersolver.json"] = bytes.hypersolver_json;
    files["weights.safetensors"] = bytes.weights;
    files["calibration.json"] = PrintCalibration(calibration);
    files.erase(kManifestName);
    const std::string folder = HypersolverFolder(server_->folder.path() + "/" + flow.name,
                                                 MethodChoice{.method = Method::kLearned});
    ASSERT_TRUE(WriteGeneration(folder, files).ok());
  }

  static v1::SampleRequest Asking(const std::string& plan) {
    v1::SampleRequest request;
    request.mutable_options()->set_model("tiny_flow");
    request.mutable_options()->mutable_plan()->set_text(plan);
    request.set_rows(kRows);
    request.set_seed(5);
    return request;
  }
  static v1::SampleReply Sample(const v1::SampleRequest& request) {
    grpc::ClientContext context;
    v1::SampleReply reply;
    const grpc::Status status = server_->calls->Sample(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  static v1::SampleReply WithBounds(const std::string& plan) {
    v1::SampleRequest request = Asking(plan);
    request.mutable_options()->set_want_error_bound(true);
    return Sample(request);
  }
  static std::string Refusal(const v1::SampleRequest& request) {
    grpc::ClientContext context;
    v1::SampleReply reply;
    const grpc::Status status = server_->calls->Sample(&context, request, &reply);
    EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
    return status.error_message();
  }
  static std::vector<float> Numbers(const v1::Tensor& wire) {
    std::vector<float> numbers(wire.data().size() / sizeof(float));
    std::memcpy(numbers.data(), wire.data().data(), wire.data().size());
    return numbers;
  }
  static std::string Row(const v1::Tensor& samples, int row) {
    return samples.data().substr(static_cast<size_t>(row) * 8, 8);
  }

  static TestServer* server_;
};

TestServer* BoundsServiceTest::server_ = nullptr;

TEST_F(BoundsServiceTest, EachRowHasItsOwnBound) {
  const v1::SampleReply plain = Sample(Asking("learned:2"));
  EXPECT_EQ(plain.info().error_bound_size(), 0);
  const v1::SampleReply reply = WithBounds("learned:2");
  EXPECT_EQ(reply.samples().data(), plain.samples().data());
  EXPECT_GT(reply.info().macs(0), plain.info().macs(0));
  EXPECT_EQ(reply.info().plan_rows_size(), 0);
  ASSERT_EQ(reply.info().error_bound_size(), kRows);
  const auto end = Numbers(reply.samples()), coarse = Numbers(Sample(Asking("euler:1")).samples());
  for (int row = 0; row < kRows; ++row) {
    double squares = 0, size = 0;
    for (size_t i = 2 * static_cast<size_t>(row); i < 2 * static_cast<size_t>(row) + 2; ++i) {
      squares += std::pow(double{end[i]} - coarse[i], 2);
      size += std::pow(double{end[i]}, 2);
    }
    EXPECT_NEAR(reply.info().error_bound(row), 2 * std::sqrt(squares / size), 1e-5);
  }
}

TEST_F(BoundsServiceTest, WhoAsksInVainIsTold) {
  v1::SampleRequest request = Asking("heun:2");
  request.mutable_options()->set_want_error_bound(true);
  EXPECT_THAT(Refusal(request), HasSubstr("learned:2, learned:4 have one"));
  request.mutable_options()->mutable_plan()->set_text("learned:2/double");
  EXPECT_THAT(Refusal(request), HasSubstr("'learned:2/double' has no bound"));
  request.mutable_options()->mutable_plan()->set_text("auto:1e-12,per_row");
  EXPECT_THAT(Refusal(request), HasSubstr("99 %"));
}

TEST_F(BoundsServiceTest, RowsGoOnWhileTheirBoundExceedsTheTarget) {
  const v1::SampleReply two = WithBounds("learned:2"), four = WithBounds("learned:4");
  std::vector<double> bounds(two.info().error_bound().begin(), two.info().error_bound().end());
  std::nth_element(bounds.begin(), bounds.begin() + 15, bounds.end());
  v1::SampleRequest request = Asking("");
  v1::AutoPlan* automatic = request.mutable_options()->mutable_plan()->mutable_automatic();
  automatic->set_target_error(bounds[15]);
  automatic->set_per_row(true);
  const v1::SampleReply reply = Sample(request);
  const v1::SolveInfo& info = reply.info();
  EXPECT_EQ(info.plan(),
            PrintPlan({.choice = AutoPlan{.target_error = bounds[15], .per_row = true}}));
  EXPECT_THAT(info.plan_reason(), HasSubstr("learned:2, then learned:4"));
  EXPECT_EQ(info.generation(), 1);
  EXPECT_FALSE(info.has_calibrated_error());
  ASSERT_EQ(info.plan_rows_size(), 2);
  EXPECT_EQ(info.plan_rows(0).plan(), "learned:2");
  EXPECT_EQ(info.plan_rows(0).rows(), kRows);
  EXPECT_EQ(info.plan_rows(0).rows_ended(), 16);
  EXPECT_EQ(info.plan_rows(1).plan(), "learned:4");
  EXPECT_EQ(info.plan_rows(1).rows(), kRows - 16);
  EXPECT_EQ(info.plan_rows(1).rows_ended(), kRows - 16);
  ASSERT_EQ(info.error_bound_size(), kRows);
  ASSERT_EQ(info.nfe_size(), kRows);
  for (int row = 0; row < kRows; ++row) {
    const bool ended = two.info().error_bound(row) <= bounds[15];
    const v1::SampleReply& last = ended ? two : four;
    EXPECT_EQ(Row(reply.samples(), row), Row(last.samples(), row)) << row;
    EXPECT_EQ(info.error_bound(row), last.info().error_bound(row));
    EXPECT_EQ(info.nfe(row), ended ? 2 : 6);
    EXPECT_EQ(info.macs(row), two.info().macs(0) + (ended ? 0 : four.info().macs(0)));
  }

  // A stream of chunks says the same.
  v1::SampleStreamRequest streamed;
  *streamed.mutable_sample() = request;
  streamed.set_chunk_rows(7);
  grpc::ClientContext context;
  const auto reader = server_->calls->SampleStream(&context, streamed);
  v1::SampleChunk chunk;
  std::string samples;
  std::vector<double> streamed_bounds;
  v1::SolveInfo summary;
  while (reader->Read(&chunk)) {
    samples += chunk.samples().data();
    if (chunk.has_summary()) summary = chunk.summary();
    for (int row = 0; row < chunk.rows(); ++row) {
      streamed_bounds.push_back(chunk.error_bound(chunk.error_bound_size() == 1 ? 0 : row));
    }
    EXPECT_EQ(chunk.plan_rows(0).rows(), chunk.rows());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(samples, reply.samples().data());
  EXPECT_TRUE(std::equal(streamed_bounds.begin(), streamed_bounds.end(), info.error_bound().begin(),
                         info.error_bound().end()));
  ASSERT_EQ(summary.plan_rows_size(), 2);
  EXPECT_EQ(summary.plan_rows(0).rows_ended(), 16);
}

TEST_F(BoundsServiceTest, GetModelTellsWhichPlansHaveBounds) {
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_model("tiny_flow");
  v1::GetModelReply reply;
  ASSERT_TRUE(server_->calls->GetModel(&context, request, &reply).ok());
  std::vector<std::string> bounded;
  for (const v1::PlanInfo& plan : reply.plans()) {
    if (plan.has_bound_factor()) bounded.push_back(plan.plan());
  }
  EXPECT_THAT(bounded, ElementsAre("learned:2", "learned:4"));
}

}  // namespace
}  // namespace hyperserve
