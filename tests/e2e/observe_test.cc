// What the daemon tells about itself: health, reflection, pages, metrics.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "client/client.h"
#include "client/deadline.h"
#include "core/io/file.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

Deadline Soon() { return Deadline::In(kSoon); }

class Observe : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Observe, HealthPerModel) {
  Client client(daemon_->client_options());
  for (const std::string service :
       {"", "hyperserve.v1.Hyperserve", "model/tiny_flow", "model/tiny_classifier"}) {
    const auto state = client.CheckHealth(service, Soon());
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(*state, HealthState::kServing) << service;
  }
  EXPECT_EQ(client.CheckHealth("model/nobody", Soon()).status().code(),
            absl::StatusCode::kNotFound);
  HealthState seen = HealthState::kUnknown;
  const auto watch = [&](HealthState state) {
    seen = state;
    return false;
  };
  EXPECT_TRUE(client.WatchHealth("model/tiny_flow", Soon(), watch).ok());
  EXPECT_EQ(seen, HealthState::kServing);
  EXPECT_TRUE(client.WatchHealth("model/nobody", Soon(), watch).ok());
  EXPECT_EQ(seen, HealthState::kServiceUnknown);
}

// One message each way on the reflection stream, as bytes: its protocol is not among our protos.
std::string Reflect(const Daemon& daemon, const std::string& version,
                    const std::string& request_bytes) {
  grpc::GenericStub stub(grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(Soon().at);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(request_bytes);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (ok) reply.Dump(&slices).ok();
  std::string bytes;
  for (const grpc::Slice& part : slices) {
    bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return bytes;
}

TEST_F(Observe, ReflectionDescribesWhatItLists) {
  for (const std::string version : {"v1alpha", "v1"}) {
    SCOPED_TRACE(version);
    const std::string list_services = {0x3a, 0x00};  // field 7, an empty string
    const std::string services = Reflect(*daemon_, version, list_services);
    const auto file_of = [&](const std::string& symbol) {  // field 4: the file that holds it
      return Reflect(*daemon_, version,
                     "\x22" + std::string(1, static_cast<char>(symbol.size())) + symbol);
    };
    EXPECT_THAT(file_of("hyperserve.v1.Hyperserve"), HasSubstr("SampleStream"));
    EXPECT_THAT(file_of("grpc.health.v1.Health"), HasSubstr("HealthCheckRequest"));
    EXPECT_THAT(file_of("grpc.reflection.v1.ServerReflection"), HasSubstr("list_services"));
    for (const char* name : {"hyperserve.v1.Hyperserve", "grpc.health.v1.Health",
                             "grpc.reflection.v1.ServerReflection"}) {
      EXPECT_THAT(services, HasSubstr(name));
    }
    EXPECT_THAT(file_of("nobody.Knows"), testing::Not(HasSubstr("SampleStream")));
  }
}

TEST_F(Observe, PagesAndMetrics) {
  Client client(daemon_->client_options());
  ASSERT_TRUE(client.Sample(tiny::SampleRows(7, "hyper_heun:2"), Soon()).ok());
  ASSERT_TRUE(client.Classify(tiny::ClassifyRows(3, "euler:2"), Soon()).ok());
  EXPECT_EQ(client.GetModel("nobody", Soon()).status().code(), absl::StatusCode::kNotFound);
  ASSERT_FALSE(client.Publish(tiny::PublishRequest(tiny::Candidate(-1.0)), Soon()).ok());
  v1::PublishHypersolverRequest alpha = tiny::PublishRequest(tiny::Candidate(-1.0));
  alpha.set_method("alpha(0.11)");
  ASSERT_FALSE(client.Publish(alpha, Soon()).ok());
  const auto late = client.Sample(tiny::SampleRows(64, "rk4:10000"),
                                  Deadline::In(std::chrono::milliseconds(100)));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(daemon_->Get("/livez").status, 200);
  const HttpAnswer ready = daemon_->Get("/readyz");
  EXPECT_EQ(ready.status, 200);
  EXPECT_THAT(ready.body, HasSubstr("tiny_flow"));
  EXPECT_EQ(daemon_->Get("/other").status, 404);
  HttpAnswer metrics = daemon_->Get("/metrics");
  ASSERT_EQ(metrics.status, 200);
  // The client gives up the late call by its own clock, perhaps before the daemon does.
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (metrics.body.find("in_flight{call=\"Sample\"} 0") == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
    metrics = daemon_->Get("/metrics");
  }
  for (const char* line :
       {"hyperserve_build_info\\{", "hyperserve_request_duration_seconds_bucket\\{[^\n]*tiny_flow",
        "hyperserve_queue_duration_seconds_bucket", "hyperserve_solve_duration_seconds_bucket",
        "hyperserve_rows_total\\{[^\n]*tiny_flow[^\n]*\\} 7", "hyper_heun:2",
        "hyperserve_publish_results_total\\{[^\n]*method=\"alpha\"",
        "hyperserve_requests_total\\{[^\n]*DEADLINE_EXCEEDED",
        "hyperserve_device_memory_used_bytes\\{device=\"cpu\"\\} [1-9]"}) {
    EXPECT_THAT(metrics.body, ContainsRegex(line));
  }
  EXPECT_THAT(metrics.body, Not(HasSubstr("alpha(0.11"))) << "anybody may try any alpha";
}

// Text from a user's files cannot forge lines, neither on the page nor in the log.
TEST_F(Observe, OneLineAProblemAndAnEvent) {
  fixture::LinearModel broken = fixture::TinyFlow();
  broken.name = "broken";
  broken.model_json = R"({"format": 1, "kind": "x\r\nmodel forged"})";
  ASSERT_TRUE(fixture::WriteModel(broken, repository_.path()).ok());
  daemon_ = *Daemon::Start(repository_.path());
  const std::string page = daemon_->Get("/readyz").body;
  EXPECT_THAT(page, ContainsRegex("\nproblem broken: [^\n]*model forged"));
  EXPECT_THAT(daemon_->Log(), ContainsRegex("event=model_refused model=broken [^\n]*model forged"));
}

TEST_F(Observe, PromtoolFindsNothingToSay) {
  const std::string promtool = PROMTOOL;
  if (access(PROMTOOL, X_OK) != 0) GTEST_SKIP() << "promtool is not installed";
  Client client(daemon_->client_options());
  ASSERT_TRUE(client.Sample(tiny::SampleRows(7, "hyper_heun:2"), Soon()).ok());
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/metrics";
  ASSERT_TRUE(WriteFileAtomically(page, daemon_->Get("/metrics").body).ok());
  const Finished check =
      RunToEnd({"/bin/sh", "-c", "exec \"$0\" check metrics < \"$1\"", promtool, page});
  EXPECT_EQ(check.exit_code, 0);
  EXPECT_EQ(check.out + check.err, "");
}

TEST_F(Observe, LogsOneLineACallWithItsRequestId) {
  Client client(daemon_->client_options());
  v1::SampleRequest request = tiny::SampleRows(1, "hyper_heun:100");
  request.mutable_options()->set_request_id("look-for-me");
  ASSERT_FALSE(client.Sample(request, Soon()).ok());
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (daemon_->Log().find("look-for-me") == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
  }
  EXPECT_THAT(daemon_->Log(), ContainsRegex("look-for-me[^\n]*FAILED_PRECONDITION|"
                                            "FAILED_PRECONDITION[^\n]*look-for-me"));
}

}  // namespace
}  // namespace hyperserve
