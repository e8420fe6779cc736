// What clients without credentials can do to the daemon: connections, memory, pings. Beside each,
// another client is served.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "client/deadline.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr char kOpen[] = "hyperserve_connections{port=\"address\"}";

class Connections {
 public:
  ~Connections() { CloseAll(); }
  void Open(const std::string& address, int count) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{.sin_family = AF_INET};
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    ASSERT_EQ(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr), 1);
    for (int i = 0; i < count; ++i) {
      fds_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_GE(fds_.back(), 0);
      ASSERT_EQ(connect(fds_.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << i;
    }
  }
  void CloseAll() {
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }

 private:
  std::vector<int> fds_;
};

class Abuse : public testing::Test {
 protected:
  void StartDaemon(std::vector<std::string> flags = {}) {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path(), std::move(flags));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  // By a connection of its own.
  void ExpectServed() const {
    const auto reply = Client(daemon_->client_options())
                           .Sample(tiny::SampleRows(1, "heun:1"), Deadline::In(seconds(5)));
    EXPECT_TRUE(reply.ok()) << reply.status();
  }
  std::unique_ptr<v1::Hyperserve::Stub> Stub(const grpc::ChannelArguments& arguments) const {
    return v1::Hyperserve::NewStub(grpc::CreateCustomChannel(
        daemon_->address(), grpc::InsecureChannelCredentials(), arguments));
  }
  double Figure(const std::string& line) const {
    const std::string page = daemon_->Get("/metrics").body;
    const size_t at = page.find("\n" + line + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + line.size() + 2));
  }
  // The figure once it is `wanted`, else what it is after five seconds.
  double Await(const std::string& line, double wanted) const {
    for (int i = 0; i < 100 && Figure(line) != wanted; ++i) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    return Figure(line);
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Abuse, IdleConnectionsLeaveTheListenersAlive) {
  // The daemon inherits the limits; the soft one alone could be raised.
  constexpr rlim_t kDescriptors = 1024;
  const rlimit limit{.rlim_cur = kDescriptors, .rlim_max = kDescriptors};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  StartDaemon();
  Connections idle;
  idle.Open(daemon_->http_address(), 700);
  ExpectServed();
  EXPECT_EQ(daemon_->Get("/livez").status, 200);
  idle.CloseAll();
  idle.Open(daemon_->address(), 700);
  EXPECT_EQ(daemon_->Get("/livez").status, 200);
  EXPECT_EQ(Await(kOpen, 256), 256);  // of one address
  EXPECT_EQ(Await("hyperserve_connections_refused_total{limit=\"peer\",port=\"address\"}", 444),
            444);
  idle.CloseAll();
  EXPECT_EQ(Await(kOpen, 0), 0);
  ExpectServed();
}

TEST_F(Abuse, SilentConnectionsAreClosed) {
  StartDaemon({"--connection_start_max_seconds=0.5"});
  Connections silent;
  silent.Open(daemon_->address(), 5);
  EXPECT_EQ(Await(kOpen, 5), 5);
  EXPECT_EQ(Await(kOpen, 0), 0);
}

TEST_F(Abuse, CompressedRequestsAreNotInflated) {
  StartDaemon();
  const double before = Figure("process_resident_memory_bytes");
  v1::ClassifyRequest request = tiny::ClassifyRows(1, "euler:1");
  request.mutable_inputs()->set_data(std::string(256 << 20, '\0'));  // 256 KB compressed
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto send = [&](const v1::ClassifyRequest& compressed) {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::ClassifyReply reply;
    return Stub(arguments)->Classify(&context, compressed, &reply);
  };
  EXPECT_FALSE(send(request).ok());
  EXPECT_LT(Figure("process_resident_memory_bytes"), before + 100e6);
  const grpc::Status small = send(tiny::ClassifyRows(1, "euler:1"));
  EXPECT_EQ(small.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(small.error_message(), HasSubstr("gzip"));
  ExpectServed();
}

TEST_F(Abuse, AFullProcessShedsCallsAndStaysAlive) {
  StartDaemon({"--memory_max=1e6"});
  ClientOptions options = daemon_->client_options();
  options.retry.attempts_max = 1;
  std::this_thread::sleep_for(milliseconds(300));
  const auto shed = Client(options).Sample(tiny::SampleRows(1, "heun:1"), Deadline::In(seconds(5)));
  EXPECT_EQ(shed.status().code(), absl::StatusCode::kResourceExhausted) << shed.status();
  EXPECT_THAT(std::string(shed.status().message()), HasSubstr("memory_max"));
  EXPECT_EQ(daemon_->Get("/livez").status, 200);
}

TEST_F(Abuse, PingsKeepALongCall) {
  StartDaemon();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(6));
  v1::SampleReply reply;
  // Longer than its deadline: without room for pings it ends earlier, UNAVAILABLE.
  const grpc::Status late =
      Stub(arguments)->Sample(&context, tiny::SampleRows(1 << 14, "rk4:10000"), &reply);
  EXPECT_EQ(late.error_code(), grpc::DEADLINE_EXCEEDED) << late.error_message();
}

}  // namespace
}  // namespace hyperserve
