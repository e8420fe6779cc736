// Calls that are slow, shed, cancelled or too late. A fake engine stops at a gate, so that no test
// depends on time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "hyperserve/v1/hyperserve.pb.h"
#include "server/rpc/call.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/server/rpc/service_fixture.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

v1::SampleRequest Asking(int64_t rows) {
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("euler:1");
  request.set_rows(rows);
  return request;
}

class CallFlowTest : public testing::Test {
 protected:
  // A finished stream leaves nothing behind.
  void ExpectStreamsGone() {
    const std::string gone = "hyperserve_requests_in_flight{call=\"SampleStream\"} 0\n";
    for (int i = 0; i < 1000; ++i) {
      if (server_.metrics.Text().find(gone) != std::string::npos) return;
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << server_.metrics.Text();
  }

  ~CallFlowTest() override { control_->OpenGate(); }

  grpc::Status Sample(grpc::ClientContext& context, int64_t rows = 1) {
    v1::SampleReply reply;
    return server_.calls->Sample(&context, Asking(rows), &reply);
  }

  std::shared_ptr<FakeEngineControl> control_ = std::make_shared<FakeEngineControl>();
  TestServer server_{BatcherOptionsWith({.solvers = 1, .batch_rows_max = 10, .queue_rows_max = 20}),
                     MakeFakeRuntime(control_),
                     LimitsWith({.request_rows_max = 1000, .retry_pushback_ms = 77})};
  grpc::ClientContext context_;
};

TEST_F(CallFlowTest, UnavailableWhileLoadingAndWhileDraining) {
  const grpc::Status loading = Sample(context_);
  EXPECT_EQ(loading.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(loading.error_message(), HasSubstr("loading"));
  EXPECT_EQ(Trailer(context_, "grpc-retry-pushback-ms"), "77");
  server_.Load();
  grpc::ClientContext second, third;
  EXPECT_TRUE(Sample(second).ok());
  server_.environment.draining = true;
  const grpc::Status draining = Sample(third);
  EXPECT_EQ(draining.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(draining.error_message(), HasSubstr("shutting down"));
  EXPECT_EQ(Trailer(third, "grpc-retry-pushback-ms"), "");
}

TEST_F(CallFlowTest, ShedCallsSayWhenToTryAgain) {
  server_.Load();
  const grpc::Status status = Sample(context_, 21);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("queue_rows_max = 20"));
  EXPECT_EQ(Trailer(context_, "grpc-retry-pushback-ms"), "77");
  grpc::ClientContext second;
  EXPECT_EQ(Sample(second, 2000).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Trailer(second, "grpc-retry-pushback-ms"), "");
}

TEST_F(CallFlowTest, DeadlineStopsTheSolve) {
  server_.Load();
  control_->CloseGate();
  context_.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
  EXPECT_EQ(Sample(context_).error_code(), grpc::DEADLINE_EXCEEDED);
  // The engine noticed as well: it takes another batch although its gate was never opened.
  std::thread next([this] {
    grpc::ClientContext context;
    EXPECT_TRUE(Sample(context).ok());
  });
  control_->WaitForBatches(2);
  control_->OpenGate();
  next.join();
}

TEST_F(CallFlowTest, CancellationStopsTheSolve) {
  server_.Load();
  control_->CloseGate();
  std::thread cancelled([this] { EXPECT_EQ(Sample(context_).error_code(), grpc::CANCELLED); });
  control_->WaitForBatches(1);
  context_.TryCancel();
  cancelled.join();
  std::thread next([this] {
    grpc::ClientContext context;
    EXPECT_TRUE(Sample(context).ok());
  });
  control_->WaitForBatches(2);
  control_->OpenGate();
  next.join();
}

TEST_F(CallFlowTest, AStreamIsSolvedOnlyAsItIsDrained) {
  server_.Load();
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Asking(500);
  request.set_chunk_rows(5);
  const auto reader = server_.calls->SampleStream(&context_, request);
  v1::SampleChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  std::this_thread::sleep_for(milliseconds(100));  // nobody drains
  // One read, one or two on their way, two ahead.
  EXPECT_LE(control_->batches().size(), 5u);
  int64_t rows = chunk.rows();
  uint64_t next_row = 5;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.first_row(), next_row);
    next_row += 5;
    rows += chunk.rows();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(rows, 500);
  EXPECT_TRUE(chunk.has_summary());
  ExpectStreamsGone();
}

TEST_F(CallFlowTest, ACancelledStreamEnds) {
  server_.Load();
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Asking(500);
  request.set_chunk_rows(5);
  const auto reader = server_.calls->SampleStream(&context_, request);
  v1::SampleChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  context_.TryCancel();
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  ExpectStreamsGone();
}

TEST_F(CallFlowTest, AStreamThatBeganWaitsForRoom) {
  server_.Load();
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Asking(90);
  request.set_chunk_rows(15);  // two of them are more than the queues hold
  const auto reader = server_.calls->SampleStream(&context_, request);
  v1::SampleChunk chunk;
  uint64_t next_row = 0;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.first_row(), next_row);
    next_row += static_cast<uint64_t>(chunk.rows());
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(next_row, 90u);
  ExpectStreamsGone();
}

TEST_F(CallFlowTest, AStreamEndsWithTheErrorOfItsChunk) {
  server_.Load();
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Asking(500);
  request.set_chunk_rows(21);  // more than the queues hold
  const auto reader = server_.calls->SampleStream(&context_, request);
  v1::SampleChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Trailer(context_, "grpc-retry-pushback-ms"), "77");
  ExpectStreamsGone();
}

TEST_F(CallFlowTest, AStreamThatNobodyDrainsEndsAtItsDeadline) {
  server_.environment.limits.deadline_max = milliseconds(100);
  server_.Load();
  v1::SampleStreamRequest request;
  *request.mutable_sample() = Asking(500);
  request.set_chunk_rows(5);
  const auto reader = server_.calls->SampleStream(&context_, request);
  std::this_thread::sleep_for(milliseconds(300));
  v1::SampleChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_LT(control_->batches().size(), 20u);
  ExpectStreamsGone();
}

TEST(ClientOf, IsTheAddressWithoutThePortAndABoundedName) {
  EXPECT_EQ(ClientOf("ipv4:10.0.0.1:4711", "").peer, "ipv4:10.0.0.1");
  EXPECT_EQ(ClientOf("ipv6:%5B::1%5D:4711", "").peer, "ipv6:%5B::1%5D");
  EXPECT_EQ(ClientOf("unix:/run/a:b", "").peer, "unix:/run/a:b");
  EXPECT_EQ(ClientOf("", "").peer, "");
  EXPECT_EQ(ClientOf("ipv4:10.0.0.1:1", "batch").name, "batch");
  EXPECT_EQ(ClientOf("ipv4:10.0.0.1:1", std::string(9000, 'x')).name.size(), 64u);
}

TEST(ToGrpc, CodesOutsideTheTableAreOurFault) {
  EXPECT_EQ(ToGrpc(absl::DataLossError("x")).error_code(), grpc::INTERNAL);
  EXPECT_EQ(ToGrpc(absl::UnknownError("x")).error_code(), grpc::INTERNAL);
  EXPECT_EQ(ToGrpc(absl::AbortedError("x")).error_code(), grpc::ABORTED);
  const std::string cut =
      ToGrpc(absl::InvalidArgumentError(std::string(9000, 'x'))).error_message();
  EXPECT_LE(cut.size(), 2048u);
  EXPECT_GT(cut.size(), 2040u);
}

}  // namespace
}  // namespace hyperserve
