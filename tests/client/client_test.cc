#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/deadline.h"
#include "client/retry.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/client/fake_daemon.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr seconds kAmple{20};

grpc::Status Exhausted() { return {grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full"}; }

v1::ClassifyRequest Request(const std::string& id = "") {
  v1::ClassifyRequest request;
  request.mutable_options()->set_model("any");
  request.mutable_options()->set_request_id(id);
  return request;
}

TEST(Client, CarriesDeadlineAndRequestId) {
  FakeDaemon daemon;
  std::chrono::system_clock::time_point seen;
  daemon.on_classify = [&](int, grpc::ServerContext& context, v1::ClassifyReply& reply) {
    seen = context.deadline();
    reply.add_labels(7);
    return grpc::Status::OK;
  };
  Client client(daemon.options());
  const Deadline deadline = Deadline::In(kAmple);
  const auto reply = client.Classify(Request("mine"), deadline);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->labels(0), 7);
  EXPECT_LT(std::chrono::abs(seen - deadline.at), seconds(1));
  ASSERT_TRUE(client.Classify(Request(), deadline).ok());
  ASSERT_TRUE(client.Classify(Request(), deadline).ok());
  const auto requests = daemon.classified();
  EXPECT_EQ(requests[0].options().request_id(), "mine");
  EXPECT_FALSE(requests[1].options().request_id().empty());
  EXPECT_NE(requests[1].options().request_id(), requests[2].options().request_id());
}

TEST(Client, ComesBackWhenTheServerSays) {
  FakeDaemon daemon;
  daemon.on_classify = [](int attempt, grpc::ServerContext& context, v1::ClassifyReply&) {
    if (attempt == 3) return grpc::Status::OK;
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "30");
    return Exhausted();
  };
  Client client(daemon.options());
  const auto begin = steady_clock::now();
  ASSERT_TRUE(client.Classify(Request(), Deadline::In(kAmple)).ok());
  EXPECT_GE(steady_clock::now() - begin, milliseconds(90)) << "a pushback of 30 ms, then twice it";
  const auto requests = daemon.classified();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].options().request_id(), requests[2].options().request_id());
}

TEST(Client, WaitsForRoomAsLongAsItIsTold) {
  FakeDaemon daemon;
  daemon.on_classify = [](int attempt, grpc::ServerContext& context, v1::ClassifyReply&) {
    if (attempt == 12) return grpc::Status::OK;
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return Exhausted();
  };
  ClientOptions options = daemon.options();
  options.retry.delay_max = milliseconds(5);
  EXPECT_EQ(Client(options).Classify(Request(), Deadline::In(kAmple)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(daemon.classified().size(), 5u);
  options.retry.attempts_max_full = kUntilTheDeadline;
  EXPECT_TRUE(Client(options).Classify(Request(), Deadline::In(kAmple)).ok());
  EXPECT_EQ(daemon.classified().size(), 12u);
}

TEST(Client, WaitsForAServerThatLoads) {
  FakeDaemon daemon;
  daemon.on_classify = [](int attempt, grpc::ServerContext& context, v1::ClassifyReply&) {
    if (attempt == 12) return grpc::Status::OK;
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "loading");
  };
  ClientOptions options = daemon.options();
  options.retry.delay_max = milliseconds(5);
  EXPECT_TRUE(Client(options).Classify(Request(), Deadline::In(kAmple)).ok());
  EXPECT_EQ(daemon.classified().size(), 12u);
}

TEST(Client, GivesUpWithoutPushbackAndNamesTheRequest) {
  FakeDaemon daemon;
  daemon.on_classify = [](int, grpc::ServerContext&, v1::ClassifyReply&) { return Exhausted(); };
  Client client(daemon.options());
  const auto reply = client.Classify(Request("r-1"), Deadline::In(kAmple));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("queue full (request r-1)"));
  EXPECT_EQ(daemon.classified().size(), 1u);
}

TEST(Client, DoesNotRepeatWhatTheServerSaw) {
  FakeDaemon daemon;
  daemon.on_classify = [](int, grpc::ServerContext&, v1::ClassifyReply&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  };
  Client client(daemon.options());
  const auto reply = client.Classify(Request(), Deadline::In(kAmple));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon.classified().size(), 1u);
}

TEST(Client, PublishIsNeverRepeated) {
  FakeDaemon daemon;
  daemon.on_publish = [](int, grpc::ServerContext& context) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return Exhausted();
  };
  Client client(daemon.options());
  EXPECT_EQ(client.Publish({}, Deadline::In(kAmple)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(daemon.published(), 1);
}

TEST(Client, WaitsForADaemonThatStartsLate) {
  const int port = FakeDaemon().port();  // free again
  Client client({.address = "127.0.0.1:" + std::to_string(port),
                 .retry = {.attempts_max = 100, .delay_first = milliseconds(20)}});
  std::unique_ptr<FakeDaemon> daemon;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(200));
    auto started = std::make_unique<FakeDaemon>(port);
    daemon = std::move(started);
  });
  const auto list = client.ListModels(Deadline::In(kAmple));
  late.join();
  EXPECT_EQ(list.status().code(), absl::StatusCode::kUnimplemented) << list.status();
}

TEST(Client, SaysSoonThatNobodyIsThere) {
  const int port = FakeDaemon().port();
  Client client({.address = "127.0.0.1:" + std::to_string(port)});
  const auto begin = steady_clock::now();
  const auto list = client.ListModels(Deadline::In(kAmple));
  EXPECT_EQ(list.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(list.status().message()), HasSubstr("no connection to 127.0.0.1"));
  EXPECT_LT(steady_clock::now() - begin, seconds(5));
}

TEST(Client, EndsAtTheDeadline) {
  FakeDaemon daemon;
  daemon.on_classify = [](int, grpc::ServerContext& context, v1::ClassifyReply&) {
    while (!context.IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return grpc::Status::OK;
  };
  Client client(daemon.options());
  EXPECT_EQ(client.Classify(Request(), Deadline::In(milliseconds(100))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client.Classify(Request(), Deadline::In(seconds(-1))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(daemon.classified().size(), 1u) << "what is over before it began is not sent";
}

}  // namespace
}  // namespace hyperserve
