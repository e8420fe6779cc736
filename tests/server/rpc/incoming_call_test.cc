// Requests that do not arrive, do not decode or bring nothing, and replies that nobody reads.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hyperserve/v1/admin.grpc.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/ledgers/call_ledger.h"
#include "server/rpc/ledgers/reply_ledger.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/server/rpc/service_fixture.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

constexpr char kSample[] = "/hyperserve.v1.Hyperserve/Sample";
constexpr char kStream[] = "/hyperserve.v1.Hyperserve/SampleStream";

// A client's call that sends its headers, then what the test says.
class RawCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawCall(grpc::GenericStub& stub, const std::string& method) {
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    StartCall();
  }
  ~RawCall() override {
    Cancel();
    done_.wait();
  }
  // Sends a request. The reply is never read.
  void Send(const google::protobuf::Message& request) {
    const grpc::Slice slice(request.SerializeAsString());
    request_ = grpc::ByteBuffer(&slice, 1);
    StartWriteLast(&request_, {});
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() { return done_.get(); }

 private:
  void OnDone(const grpc::Status& status) override { ended_.set_value(status); }
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  std::promise<grpc::Status> ended_;
  std::shared_future<grpc::Status> done_ = ended_.get_future();
};

class IncomingCallTest : public testing::Test {
 protected:
  grpc::Status Send(const std::string& method, const std::string& bytes) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    grpc::ClientContext context;
    std::promise<grpc::Status> ended;
    stub_.UnaryCall(&context, method, {}, &request, &reply,
                    [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  }
  void ExpectCounted(const std::string& call, const std::string& code) {
    EXPECT_THAT(server_.metrics.Text(), HasSubstr("hyperserve_requests_total{call=\"" + call +
                                                  "\",code=\"" + code + "\",model=\"other\"} 1\n"));
  }

  TestServer server_{BatcherOptionsWith({.queue_rows_max = 1 << 16}),
                     MakeFakeRuntime(std::make_shared<FakeEngineControl>()),
                     LimitsWith({.queue_bytes_max = 1 << 20, .request_arrival_max_seconds = 0.1})};
  grpc::GenericStub stub_{server_.channel};
};

TEST_F(IncomingCallTest, WhatDoesNotDecodeIsInvalidInWords) {
  const std::string latin_1 = "\x0a\x07\x0a\x05gr\xf6sse";
  for (const char* method : {kSample, kStream}) {
    const grpc::Status refused = Send(method, latin_1);
    EXPECT_EQ(refused.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(),
                HasSubstr("that do not decode, or text that is not UTF-8"));
  }
  ExpectCounted("Sample", "INVALID_ARGUMENT");
  ExpectCounted("SampleStream", "INVALID_ARGUMENT");
  EXPECT_EQ(Send("/hyperserve.v1.Admin/WatchModels", "\xff\xff").error_code(),
            grpc::INVALID_ARGUMENT);
}

// Groups within groups of a field that nobody knows: the parser takes 100 of them.
TEST_F(IncomingCallTest, NestingIsBounded) {
  const auto nested = [](int depth) {
    return std::string(depth, '\x7b') + std::string(depth, '\x7c');  // field 15 begins, ends
  };
  EXPECT_NE(Send(kSample, nested(90)).error_message(),
            Send(kSample, nested(1'000'000)).error_message());
  const grpc::Status refused = Send(kSample, nested(1'000'000));
  EXPECT_EQ(refused.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("do not decode"));
}

TEST_F(IncomingCallTest, ARequestMustArriveInTime) {
  RawCall silent(stub_, kSample), stream(stub_, kStream);
  for (RawCall* call : {&silent, &stream}) {
    const grpc::Status refused = call->End();
    EXPECT_EQ(refused.error_code(), grpc::DEADLINE_EXCEEDED);
    EXPECT_THAT(refused.error_message(), HasSubstr("request_arrival_max_seconds"));
  }
  ExpectCounted("Sample", "DEADLINE_EXCEEDED");
}

TEST_F(IncomingCallTest, ACallWithoutARequestIsInvalid) {
  RawCall empty(stub_, kSample);
  empty.StartWritesDone();
  const grpc::Status refused = empty.End();
  EXPECT_EQ(refused.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("no request message"));
}

TEST_F(IncomingCallTest, RepliesThatNobodyReadsStopTheirClient) {
  server_.Load();
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("euler:1");
  request.set_rows(16384);           // 128 KiB of samples
  grpc::ChannelArguments arguments;  // nothing is read ahead
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  grpc::GenericStub stub(grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_.port),
                                                   grpc::InsecureChannelCredentials(), arguments));
  std::vector<std::unique_ptr<RawCall>> unread;
  const auto await = [&](auto condition) {
    for (int i = 0; i < 1000 && !condition(server_.environment.replies.bytes()); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return server_.environment.replies.bytes();
  };
  const int64_t half = 1 << 19;
  for (int64_t before = 0; before <= half; before = server_.environment.replies.bytes()) {
    unread.push_back(std::make_unique<RawCall>(stub, kSample));
    unread.back()->Send(request);
    ASSERT_GT(await([&](int64_t bytes) { return bytes > before; }), before);
  }
  RawCall another(stub, kSample);
  another.Send(request);
  const grpc::Status refused = another.End();
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("are not read yet"));
  for (const char* method :
       {"/hyperserve.v1.Hyperserve/ListModels", "/hyperserve.v1.Hyperserve/GetServerInfo"}) {
    RawCall small(stub, method);
    small.Send(v1::ListModelsRequest());  // without a field, as that of GetServerInfo
    EXPECT_EQ(small.End().error_code(), grpc::RESOURCE_EXHAUSTED) << method;
  }
  request.set_rows(1);
  EXPECT_TRUE(Send(kSample, request.SerializeAsString()).ok());  // of another address
  for (const auto& call : unread) {
    call->Cancel();
    EXPECT_EQ(call->End().error_code(), grpc::CANCELLED);
  }
  EXPECT_EQ(await([](int64_t bytes) { return bytes == 0; }), 0);
}

TEST_F(IncomingCallTest, UnknownMethodsAreUnimplementedInWords) {
  for (const char* method :
       {"/hyperserve.v1.Hyperserve/Clasify", "/hyperserve.v1.Hyperserve/", "/nobody/Call"}) {
    const grpc::Status refused = Send(method, "");
    EXPECT_EQ(refused.error_code(), grpc::UNIMPLEMENTED);
    EXPECT_THAT(refused.error_message(), HasSubstr(method));
  }
  EXPECT_THAT(server_.metrics.Text(),
              HasSubstr("hyperserve_requests_total{call=\"other\",code=\"UNIMPLEMENTED\",model="
                        "\"other\"} 3\n"));
}

TEST_F(IncomingCallTest, WhatIsTooLargeIsToldInWordsAndNeverTriedAgain) {
  server_.environment.limits.receive_bytes_max = 1000;
  v1::SampleRequest request;
  request.mutable_options()->set_request_id(std::string(1000, 'x'));
  grpc::ClientContext context;
  v1::SampleReply reply;
  const grpc::Status refused = server_.calls->Sample(&context, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("more than receive_bytes_max = 1000"));
  EXPECT_EQ(Trailer(context, "grpc-retry-pushback-ms"), "");
  EXPECT_NE(Trailer(context, "hyperserve-request-id"), "");
  ExpectCounted("Sample", "RESOURCE_EXHAUSTED");
}

// Admin's calls are let in: whoever may change what is served may do so at any time.
TEST_F(IncomingCallTest, CallsThatStayOpenAreBounded) {
  TestServer server{BatcherOptionsWith(), MakeFakeRuntime(std::make_shared<FakeEngineControl>()),
                    LimitsWith({.request_arrival_max_seconds = 30})};
  server.environment.calls.Bound(16 * CallLedger::kBytesOfCall);
  server.Load();
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port),
                                           grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  std::vector<std::unique_ptr<RawCall>> open;
  for (int i = 0; i < 8; ++i) open.push_back(std::make_unique<RawCall>(stub, kSample));
  const auto in_flight = [&](const std::string& count) {
    const std::string line = "hyperserve_requests_in_flight{call=\"Sample\"} " + count + "\n";
    for (int i = 0; i < 1000 && server.metrics.Text().find(line) == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return server.metrics.Text().find(line) != std::string::npos;
  };
  ASSERT_TRUE(in_flight("8"));
  const grpc::Status refused = RawCall(stub, kStream).End();
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("8 calls of this client are open"));
  grpc::ClientContext of_unload, of_list;
  v1::UnloadModelRequest request;
  request.set_model("tiny_flow");
  v1::UnloadModelReply unloaded;
  EXPECT_TRUE(v1::Admin::NewStub(channel)->UnloadModel(&of_unload, request, &unloaded).ok());
  open.clear();
  EXPECT_TRUE(in_flight("0"));
  v1::ListModelsReply models;
  EXPECT_TRUE(v1::Hyperserve::NewStub(channel)->ListModels(&of_list, {}, &models).ok());
}

// Two at once of one client, or one beside a reply that is not read yet, once took its account from
// under it: UnloadModel's reply has no bytes.
TEST(ReplyLedger, EmptyRepliesHaveNoAccount) {
  ReplyLedger ledger;
  { const ReplyLedger::Hold first = ledger.Take("a", 0), second = ledger.Take("a", 0); }
  {
    const ReplyLedger::Hold empty = ledger.Take("a", 0);
    const ReplyLedger::Hold full = ledger.Take("a", 60);  // given back first
    EXPECT_THAT(std::string(ledger.Check("a", 100).message()),
                HasSubstr("60 bytes to this client"));
  }
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_TRUE(ledger.Check("a", 100).ok());
}

TEST(CallLedger, OneClientHasHalf) {
  CallLedger ledger;
  EXPECT_TRUE(ledger.Join("a").ok()) << "there is no bound yet";
  ledger.Leave("a");
  ledger.Bound(20 * CallLedger::kBytesOfCall);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ledger.Join("a").ok());
  const absl::Status own = ledger.Join("a");
  EXPECT_TRUE(absl::IsResourceExhausted(own));
  EXPECT_THAT(std::string(own.message()), HasSubstr("10 calls of this client are open"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ledger.Join("b").ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ledger.Join("c").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Join("d"))) << "all are taken";
  ledger.Leave("a");
  EXPECT_TRUE(ledger.Join("d").ok()) << "refused calls count not";
}

TEST(ReplyLedger, OneClientHasHalf) {
  ReplyLedger ledger;
  ReplyLedger::Hold first = ledger.Take("a", 60);
  EXPECT_TRUE(ledger.Check("b", 100).ok());
  const absl::Status own = ledger.Check("a", 100);
  EXPECT_TRUE(absl::IsResourceExhausted(own));
  EXPECT_THAT(std::string(own.message()), HasSubstr("60 bytes to this client and 60 in all"));
  {
    const ReplyLedger::Hold second = ledger.Take("b", 50);
    EXPECT_TRUE(absl::IsResourceExhausted(ledger.Check("c", 100)));
    EXPECT_EQ(ledger.bytes(), 110);
  }
  EXPECT_TRUE(ledger.Check("c", 100).ok());
  first = ReplyLedger::Hold();
  EXPECT_TRUE(ledger.Check("a", 100).ok());
  EXPECT_EQ(ledger.bytes(), 0);
}

TEST(ReplyLedger, AHoldCountsOnceHoweverItMoves) {
  ReplyLedger ledger;
  ReplyLedger::Hold first = ledger.Take("a", 1), second = ledger.Take("a", 2);
  second = std::move(first);
  first = ReplyLedger::Hold();
  const ReplyLedger::Hold third(std::move(second));
  EXPECT_EQ(ledger.bytes(), 1);
}

}  // namespace
}  // namespace hyperserve
