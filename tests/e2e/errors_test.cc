// Every code of the wire's table that a client can provoke, with the words that go with it.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <limits>
#include <thread>

#include "client/client.h"
#include "client/deadline.h"
#include "client/wire_tensor.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr char kLong[] = "rk4:10000";  // seconds of work

Deadline Soon() { return Deadline::In(kSoon); }

void ExpectStatus(const absl::Status& status, StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

grpc::Status CallUnknown(grpc::GenericStub& stub, grpc::ClientContext& context,
                         const std::string& method) {
  const grpc::Slice empty("");
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, method, {}, &request, &reply,
                 [&](grpc::Status status) { ended.set_value(std::move(status)); });
  return ended.get_future().get();
}

// A daemon on the tiny models for each test, with the flags it needs.
class Errors : public testing::Test {
 protected:
  // Until the page of metrics has this line; at most five seconds.
  void WaitForMetric(const std::string& line) {
    for (int i = 0; i < 1000; ++i) {
      if (daemon_->Get("/metrics").body.find(line) != std::string::npos) return;
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << line << " never came";
  }

  void StartDaemon(std::vector<std::string> flags = {}) {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path(), std::move(flags));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    ClientOptions options = daemon_->client_options();
    options.retry.attempts_max = 1;
    client_ = std::make_unique<Client>(options);
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(Errors, InvalidArgument) {
  StartDaemon();
  const auto classify = [&](auto change, const std::string& words) {
    v1::ClassifyRequest request = tiny::ClassifyRows(2, "euler:2");
    change(request);
    ExpectStatus(client_->Classify(request, Soon()).status(), StatusCode::kInvalidArgument, words);
  };
  const auto plan = [&](const std::string& text, const std::string& words) {
    classify([&](auto& request) { request.mutable_options()->mutable_plan()->set_text(text); },
             words);
  };
  plan("eulr:2", "eulr");
  plan("euler:1e-3", "euler");
  plan("hyper_dopri5:1e-3", "hyper_dopri5");
  plan("euler:0", "0");
  plan("euler:10001", "steps_max");
  classify([](auto& request) { request.mutable_inputs()->set_shape(1, 2); }, "inputs");
  classify([](auto& request) { request.mutable_inputs()->mutable_data()->pop_back(); }, "bytes");
  classify([](auto& request) { request.mutable_inputs()->set_dtype(v1::DTYPE_I64); }, "I64");
  classify([](auto& request) { request.mutable_want()->set_top_k(4); }, "top_k");
  classify([](auto& request) { request.mutable_options()->set_request_id(std::string(129, 'x')); },
           "129 characters");
  classify(
      [](auto& request) {
        HostTensor rows = HostTensor::Zeros(Dtype::kF32, {1, 1, 4, 4});
        rows.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
        *request.mutable_inputs() = ToWire(rows);
      },
      "nan");
  classify(
      [](auto& request) {
        HostTensor rows = HostTensor::Zeros(Dtype::kF32, {1, 1, 4, 4});
        rows.as<float>()[3] = 1.5f;
        *request.mutable_inputs() = ToWire(rows);
      },
      "1.5");
  classify([](auto& request) { request.mutable_options()->set_model(tiny::kFlow); }, "classifier");
  ExpectStatus(client_->Sample(tiny::SampleRows(0, "heun:1"), Soon()).status(),
               StatusCode::kInvalidArgument, "rows");
  v1::SolveRequest solve = tiny::SolveRows(1, "heun:1");
  solve.add_save_at(2.0);
  ExpectStatus(client_->Solve(solve, Soon()).status(), StatusCode::kInvalidArgument, "save_at");
}

TEST_F(Errors, UnaryRepliesThatAreTooLargeNameTheStream) {
  StartDaemon({"--reply_bytes_default=10000"});
  const v1::SampleRequest request = tiny::SampleRows(5000, "heun:1");
  ExpectStatus(client_->Sample(request, Soon()).status(), StatusCode::kInvalidArgument,
               "SampleStream");
  v1::SampleRequest raised = request;
  raised.mutable_options()->set_max_reply_bytes(1 << 20);
  EXPECT_TRUE(client_->Sample(raised, Soon()).ok());
  v1::SampleStreamRequest stream;
  *stream.mutable_sample() = request;
  int64_t rows = 0;
  const auto summary = client_->SampleStream(stream, Soon(), [&](const v1::SampleChunk& chunk) {
    rows += chunk.rows();
    return absl::OkStatus();
  });
  EXPECT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(rows, 5000);
}

TEST_F(Errors, NotFoundAndFailedPrecondition) {
  StartDaemon();
  v1::SampleRequest request = tiny::SampleRows(1, "hyper_heun:2");
  request.mutable_options()->set_model("nobody");
  ExpectStatus(client_->Sample(request, Soon()).status(), StatusCode::kNotFound, "tiny_flow");
  request = tiny::SampleRows(1, "hyper_heun:2");
  request.mutable_options()->set_generation(9);
  ExpectStatus(client_->Sample(request, Soon()).status(), StatusCode::kNotFound, "generation 9");
  ExpectStatus(client_->Sample(tiny::SampleRows(1, "hyper_euler:2"), Soon()).status(),
               StatusCode::kNotFound, "heun");
  ExpectStatus(client_->GetModel("nobody", Soon()).status(), StatusCode::kNotFound, "nobody");
  ExpectStatus(client_->CheckHealth("model/nobody", Soon()).status(), StatusCode::kNotFound, "");
  ExpectStatus(client_->Sample(tiny::SampleRows(1, "hyper_heun:100"), Soon()).status(),
               StatusCode::kFailedPrecondition, "0.01");
  v1::RollbackHypersolverRequest rollback;
  rollback.set_model(tiny::kFlow);
  rollback.set_method("heun");
  ExpectStatus(client_->Rollback(rollback, Soon()).status(), StatusCode::kFailedPrecondition, "");
  rollback.set_generation(9);
  ExpectStatus(client_->Rollback(rollback, Soon()).status(), StatusCode::kNotFound, "generation 9");
  rollback.set_method("euler");
  ExpectStatus(client_->Rollback(rollback, Soon()).status(), StatusCode::kNotFound, "heun");
  v1::PublishHypersolverRequest publish = tiny::PublishRequest(tiny::Candidate(-1.0));
  ExpectStatus(client_->Publish(publish, Soon()).status(), StatusCode::kFailedPrecondition,
               "claims K = 1, this one does not");
  publish.set_allow_narrower(true);
  ExpectStatus(client_->Publish(publish, Soon()).status(), StatusCode::kFailedPrecondition,
               "does not beat");
  publish.set_model("nobody");
  ExpectStatus(client_->Publish(publish, Soon()).status(), StatusCode::kNotFound, "tiny_flow");
}

TEST_F(Errors, APublishThatNobodyWaitsForIsGivenUp) {
  StartDaemon();
  const auto begin = std::chrono::steady_clock::now();
  v1::PublishHypersolverRequest slow = tiny::PublishRequest(tiny::SlowCandidate());
  slow.set_allow_narrower(true);
  const auto late = client_->Publish(slow, Deadline::In(milliseconds(300)));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status();
  const auto next = client_->Publish(tiny::PublishRequest(tiny::Candidate(0.99)), Soon());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  // Generation 2 was given up: its number is not used again, and only its verdict is left.
  ExpectStatus(next.status(), StatusCode::kFailedPrecondition, "generation 3");
  const auto page = daemon_->Get("/metrics").body;
  EXPECT_THAT(page, testing::ContainsRegex("PublishHypersolver[^\n]*code=\"DEADLINE_EXCEEDED\"|"
                                           "code=\"DEADLINE_EXCEEDED\"[^\n]*PublishHypersolver"));
  v1::RollbackHypersolverRequest rollback;
  rollback.set_model(tiny::kFlow);
  rollback.set_method("heun");
  rollback.set_generation(2);
  ExpectStatus(client_->Rollback(rollback, Soon()).status(), StatusCode::kFailedPrecondition,
               "never passed");
}

TEST_F(Errors, UnavailableWhileLoading) {
  tiny::WriteSlowRepository(repository_.path());
  auto daemon = Daemon::StartLoading(repository_.path());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ClientOptions options = (*daemon)->client_options();
  options.retry.attempts_max = 1;
  Client client(options);
  ExpectStatus(client.Sample(tiny::SampleRows(1, "heun:1"), Soon()).status(),
               StatusCode::kUnavailable, "loading its models");
  ExpectStatus(client.ListModels(Soon()).status(), StatusCode::kUnavailable, "loading its models");
  ExpectStatus(client.Publish(tiny::PublishRequest(tiny::Candidate(1.0)), Soon()).status(),
               StatusCode::kUnavailable, "loading its models");
  const auto health = client.CheckHealth("", Soon());
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, HealthState::kNotServing);
  EXPECT_EQ((*daemon)->Get("/readyz").status, 503);
  Client patient((*daemon)->client_options());
  const auto sample = patient.Sample(tiny::SampleRows(1, "heun:1"), Deadline::In(seconds(300)));
  EXPECT_TRUE(sample.ok()) << sample.status();
}

TEST_F(Errors, AbortedAndReadOnly) {
  StartDaemon();
  v1::PublishHypersolverRequest request = tiny::PublishRequest(tiny::Candidate(1.0));
  request.set_parent_generation(7);
  ExpectStatus(client_->Publish(request, Soon()).status(), StatusCode::kAborted, "7");
  request.mutable_files(0)->set_name("surprise.txt");
  ExpectStatus(client_->Publish(request, Soon()).status(), StatusCode::kInvalidArgument,
               "surprise.txt");
  client_.reset();
  daemon_.reset();
  StartDaemon({"--read_only"});
  ExpectStatus(client_->Publish(tiny::PublishRequest(tiny::Candidate(1.0)), Soon()).status(),
               StatusCode::kFailedPrecondition, "read");
}

TEST_F(Errors, ResourceExhaustedSaysWhenToComeBack) {
  StartDaemon({"--solvers=1", "--queue_rows_max=64", "--request_rows_max=64",
               "--batch_rows_max=1000", "--queue_delay_max_us=1000000", "--retry_pushback_ms=37"});
  std::jthread busy([&] {  // ends as it likes
    (void)client_->Sample(tiny::SampleRows(64, kLong), Deadline::In(seconds(3)));
  });
  WaitForMetric("hyperserve_live_queues 1\n");
  std::jthread waiting([&] {  // one second in the queue, for company: the solver is busy
    EXPECT_TRUE(client_->Sample(tiny::SampleRows(50, "heun:1"), Soon()).ok());
  });
  WaitForMetric("hyperserve_queue_rows 50\n");
  const auto stub = v1::Hyperserve::NewStub(Channel());
  grpc::ClientContext context;
  context.set_deadline(Soon().at);
  v1::SampleReply reply;
  const grpc::Status refused = stub->Sample(&context, tiny::SampleRows(10, "heun:1"), &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_GE(std::stoi(std::string(pushback->second.data(), pushback->second.size())), 37);
  ClientOptions patient = daemon_->client_options();
  patient.retry.attempts_max = 1000;
  EXPECT_TRUE(Client(patient).Sample(tiny::SampleRows(10, "heun:1"), Soon()).ok());
}

TEST_F(Errors, PredictedWorkIsBounded) {
  StartDaemon({"--pending_macs_max=3e7", "--solvers=1"});
  ExpectStatus(client_->Sample(tiny::SampleRows(500, kLong), Soon()).status(),
               StatusCode::kInvalidArgument, "pending_macs_max = 3e+07; send fewer rows");
  std::thread pending([&] {  // ends as it likes, later than the next request
    (void)client_->Sample(tiny::SampleRows(75, kLong), Deadline::In(seconds(3)));
  });
  std::this_thread::sleep_for(milliseconds(300));
  ExpectStatus(client_->Sample(tiny::SampleRows(10, kLong), Soon()).status(),
               StatusCode::kResourceExhausted, "share pending: 2.4e+07 MACs");
  EXPECT_TRUE(client_->Sample(tiny::SampleRows(1, "heun:1"), Soon()).ok());
  pending.join();
}

TEST_F(Errors, ALongSolveGivesWay) {
  StartDaemon({"--solvers=1"});
  std::atomic<bool> longer_ended = false;
  std::thread longer([&] {
    const auto reply = client_->Sample(tiny::SampleRows(64, kLong), Soon());
    longer_ended = true;
    EXPECT_TRUE(reply.ok()) << reply.status();
  });
  std::this_thread::sleep_for(milliseconds(200));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client_->Sample(tiny::SampleRows(1, "heun:1"), Soon()).ok());
  }
  EXPECT_FALSE(longer_ended);
  longer.join();
}

TEST_F(Errors, DeadlineExceededAndCancelled) {
  StartDaemon();
  auto begin = std::chrono::steady_clock::now();
  const auto late = client_->Sample(tiny::SampleRows(64, kLong), Deadline::In(milliseconds(100)));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded) << late.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(1));
  const auto stub = v1::Hyperserve::NewStub(Channel());
  grpc::ClientContext context;
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(200));
    context.TryCancel();
  });
  v1::SampleReply reply;
  const grpc::Status cancelled = stub->Sample(&context, tiny::SampleRows(64, kLong), &reply);
  canceller.join();
  EXPECT_EQ(cancelled.error_code(), grpc::StatusCode::CANCELLED);
  // The solvers are free again at once: they no longer compute the request that was given up.
  begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(client_->Sample(tiny::SampleRows(1, "heun:1"), Soon()).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(1));
  const auto counted = [&](const std::string& code) {
    const auto end = std::chrono::steady_clock::now() + kSoon;
    while (std::chrono::steady_clock::now() < end) {
      const std::string page = daemon_->Get("/metrics").body;
      if (page.find("code=\"" + code + "\"") != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  };
  EXPECT_TRUE(counted("DEADLINE_EXCEEDED"));
  EXPECT_TRUE(counted("CANCELLED"));
}

TEST_F(Errors, UnimplementedSaysSo) {
  StartDaemon();
  ExpectStatus(client_->Sample(tiny::SampleRows(1, "heun:1/fast"), Soon()).status(),
               StatusCode::kUnimplemented, "fast");
  for (const std::string& address : {daemon_->address(), daemon_->admin_address()}) {
    grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(Soon().at);
    const grpc::Status status =
        CallUnknown(stub, context, "/inference.GRPCInferenceService/ModelInfer");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_NE(status.error_message(), "");
  }
}

TEST_F(Errors, UnavailableWhileDraining) {
  StartDaemon();
  ASSERT_TRUE(client_->ListModels(Soon()).ok());  // connected
  absl::Status in_flight = absl::UnknownError("");
  std::thread busy(
      [&] { in_flight = client_->Sample(tiny::SampleRows(64, kLong), Soon()).status(); });
  std::this_thread::sleep_for(milliseconds(200));
  daemon_->Signal(SIGTERM);
  absl::Status refused;
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (refused.ok() && std::chrono::steady_clock::now() < end) {
    refused = client_->Sample(tiny::SampleRows(1, "heun:1"), Soon()).status();
  }
  ExpectStatus(refused, StatusCode::kUnavailable, "");
  busy.join();
  EXPECT_TRUE(in_flight.ok()) << in_flight;
  EXPECT_EQ(daemon_->WaitForExit(), 0);
}

}  // namespace
}  // namespace hyperserve
