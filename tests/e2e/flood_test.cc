// Clients that send without end or read nothing: the process stays under --memory_max, and another
// client is served meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/deadline.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/raw_http2.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr double kMemoryMax = 1e9;
constexpr uint32_t kWindow = 65535;  // the usual one
constexpr int kPatience = 500;       // ms

class Flood : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path(), {"--memory_max=1e9"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  double Resident() const {
    const std::string page = daemon_->Get("/metrics").body;
    const std::string name = "\nprocess_resident_memory_bytes ";
    const size_t at = page.find(name);
    return at == page.npos ? -1 : std::stod(page.substr(at + name.size()));
  }
  // Runs `attack` on so many threads, and meanwhile calls as another client, by a connection of its
  // own each time. Returns the largest resident memory that was seen.
  // Nobody may fail but in the first `grace`.
  template <class Attack>
  double PeakWhile(int threads, milliseconds grace, const Attack& attack) {
    const auto begun = std::chrono::steady_clock::now();
    std::atomic<int> left = threads;
    std::vector<std::thread> attackers;
    for (int i = 0; i < threads; ++i) {
      attackers.emplace_back([&] {
        attack();
        --left;
      });
    }
    double peak = 0;
    int served = 0, asked = 0;
    do {
      peak = std::max(peak, Resident());
      const bool strict = std::chrono::steady_clock::now() - begun >= grace;
      const absl::Status status =
          Client(daemon_->client_options())
              .Sample(tiny::SampleRows(1, "heun:1"), Deadline::In(seconds(5)))
              .status();
      ++asked;
      served += status.ok() ? 1 : 0;
      EXPECT_TRUE(status.ok() || !strict) << status;
      std::this_thread::sleep_for(milliseconds(20));
    } while (left > 0);
    peak = std::max(peak, Resident());
    for (std::thread& attacker : attackers) attacker.join();
    EXPECT_GE(2 * served, asked);
    std::printf("peak %.0f MB, %d of %d calls of another client served\n", 1e-6 * peak, served,
                asked);
    return peak;
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Flood, RequestsThatNeverEnd) {
  const std::string part(size_t{62} << 20, '\0');
  std::atomic<size_t> sent = 0;
  const double peak = PeakWhile(80, seconds(2), [&] {
    RawHttp2 connection(daemon_->address(), kWindow);
    connection.BeginCall("/hyperserve.v1.Hyperserve/Solve");
    connection.SendBody(RawHttp2::MessageHead(63 << 20), false, kPatience);
    sent += connection.SendBody(part, false, kPatience);
    std::this_thread::sleep_for(seconds(4));  // all at once
  });
  EXPECT_GT(sent, size_t{100} << 20) << "an attack that is none";
  EXPECT_LT(peak, kMemoryMax);
}

// Without a bound of ours, 16 MiB of one header take gRPC a minute and four times the memory.
TEST_F(Flood, HeadersThatNeverEnd) {
  const double before = Resident();
  const auto begun = std::chrono::steady_clock::now();
  for (const auto kind : {RawHttp2::Flood::kManyHeaders, RawHttp2::Flood::kOneLongHeader,
                          RawHttp2::Flood::kOneLongNumber}) {
    const double peak = PeakWhile(20, seconds(0), [&] {
      RawHttp2 connection(daemon_->address(), kWindow);
      EXPECT_LT(connection.FloodHeaders(kind, size_t{16} << 20, kPatience), size_t{16} << 20);
    });
    EXPECT_LT(peak, before + 100e6);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(15));
  EXPECT_THAT(
      daemon_->Get("/metrics").body,
      HasSubstr("hyperserve_connections_refused_total{limit=\"headers\",port=\"address\"}"));
}

// Some headers before others beyond 8 KiB ended gRPC's process (CVE-2023-1428).
TEST_F(Flood, OddHeadersEndNothing) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"te", "x"},
                                                        {":scheme", "x"},
                                                        {"grpclb_client_stats", "x"},
                                                        {"lb-cost-bin", "!!"},
                                                        {"grpc-trace-bin", "***"},
                                                        {"grpc-timeout", "never"},
                                                        {"user-agent", "\xff\xfe"}}) {
    RawHttp2 connection(daemon_->address(), kWindow);
    connection.BeginOddCall(name, value);
    connection.SendBody(RawHttp2::MessageHead(0), true, kPatience);
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(daemon_->Get("/livez").status, 200) << name;
  }
}

// CVE-2023-44487: each call leaves its queue as it came, and costs no solve.
TEST_F(Flood, CallsThatAreResetAtOnce) {
  const std::string message = tiny::SampleRows(1000, "rk4:1000").SerializeAsString();
  const std::string body = RawHttp2::MessageHead(static_cast<uint32_t>(message.size())) + message;
  std::atomic<int> begun = 0;
  const double peak = PeakWhile(4, seconds(0), [&] {
    RawHttp2 connection(daemon_->address(), kWindow);
    for (int i = 0; i < 5000 && !connection.closed(); ++i) {
      connection.BeginCall("/hyperserve.v1.Hyperserve/Sample");
      connection.SendBody(body, true, kPatience);
      connection.ResetCall();
      ++begun;
    }
  });
  EXPECT_GT(begun, 1000) << "an attack that is none";
  EXPECT_LT(peak, kMemoryMax);
  const std::string idle = "hyperserve_requests_in_flight{call=\"Sample\"} 0";
  const auto end = std::chrono::steady_clock::now() + kSoon;
  std::string page;
  do {
    page = daemon_->Get("/metrics").body;
  } while (page.find(idle) == page.npos && std::chrono::steady_clock::now() < end);
  EXPECT_THAT(page, HasSubstr(idle));
}

// Each open call takes 13 KB, and these end only when their client wants: three seconds later.
// Without a bound the process holds it all, v1alpha's with a thread each, and sheds for good.
TEST_F(Flood, CallsThatStayOpen) {
  constexpr double kLittle = 8e8;
  const std::string empty = RawHttp2::MessageHead(0);
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/hyperserve.v1.Hyperserve/GetServerInfo", empty},
           {"/grpc.health.v1.Health/Watch", empty},
           {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ""},
           {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", ""}}) {
    SCOPED_TRACE(path);
    auto daemon = Daemon::Start(repository_.path(), {"--memory_max=8e8"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    const double peak = PeakWhile(60, seconds(0), [&] {
      RawHttp2 connection(daemon_->address(), 0);
      for (int i = 0; i < 1000 && !connection.closed(); ++i) {
        connection.BeginCall(path);
        if (!body.empty()) connection.SendBody(body, true, kPatience);
        // What is refused takes memory and time until it is ended; two slow cores keep up with
        // this.
        if (i % 50 == 49) std::this_thread::sleep_for(milliseconds(500));
      }
      std::this_thread::sleep_for(seconds(3));
    });
    EXPECT_LT(peak, kLittle);
  }
}

TEST_F(Flood, RepliesThatNobodyReads) {
  // 1,000 rows and depths of two numbers: a reply of 8 MB for a request of 8 KB.
  v1::SolveRequest request = tiny::SolveRows(1000, "euler:1");
  request.mutable_options()->set_max_reply_bytes(64 << 20);
  for (int i = 0; i < 1000; ++i) request.add_save_at(i * 1e-3);
  const std::string message = request.SerializeAsString();
  const std::string body = RawHttp2::MessageHead(static_cast<uint32_t>(message.size())) + message;
  const double peak = PeakWhile(4, seconds(0), [&] {
    RawHttp2 connection(daemon_->address(), 0);
    for (int i = 0; i < 100; ++i) {
      connection.BeginCall("/hyperserve.v1.Hyperserve/Solve");
      connection.SendBody(body, true, kPatience);
    }
    std::this_thread::sleep_for(seconds(5));
  });
  EXPECT_LT(peak, kMemoryMax);
}

}  // namespace
}  // namespace hyperserve
