// Every GPU of a host serves: skipped where there are fewer than two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client/client.h"
#include "client/deadline.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

Deadline Soon() { return Deadline::In(kSoon); }

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    Client client(daemon_->client_options());
    const auto info = client.GetServerInfo(Soon());
    ASSERT_TRUE(info.ok()) << info.status();
    for (const v1::DeviceInfo& device : info->devices()) {
      if (absl::StartsWith(device.name(), "cuda:")) gpus_[device.name()] = device.description();
    }
    if (gpus_.size() < 2) GTEST_SKIP() << "fewer than two GPUs";
  }

  // By callers that each have one call under way.
  template <class Call>
  void CallAtOnce(int callers, int calls, const Call& call) {
    std::vector<std::thread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&] {
        Client client(daemon_->client_options());
        for (int k = 0; k < calls; ++k) call(client);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
  std::map<std::string, std::string> gpus_;  // descriptions by name
};

// Cards of one kind give a bucket the same bits.
TEST_F(Devices, EveryGpuOfAHostServes) {
  std::mutex mutex;
  std::map<std::string, int> calls;
  std::map<std::pair<std::string, int64_t>, std::set<std::string>> bits;  // by card and bucket
  for (const char* plan : {"hyper_heun:2", "rk4:4", "dopri5:1e-5"}) {
    CallAtOnce(8, 40, [&](Client& client) {
      const auto reply = client.Sample(tiny::SampleRows(5, plan), Soon());
      ASSERT_TRUE(reply.ok()) << reply.status();
      const v1::SolveInfo& info = reply->info();
      const std::lock_guard lock(mutex);
      ASSERT_TRUE(gpus_.contains(info.device())) << info.device();
      ++calls[info.device()];
      bits[{gpus_[info.device()], info.bucket()}].insert(reply->samples().data());
    });
    for (const auto& [card, answers] : bits) {
      EXPECT_EQ(answers.size(), 1u) << plan << " on " << card.first << ", bucket " << card.second;
    }
    bits.clear();
  }
  EXPECT_EQ(calls.size(), gpus_.size());
  const HttpAnswer metrics = daemon_->Get("/metrics");
  for (const auto& [gpu, description] : gpus_) {
    EXPECT_THAT(metrics.body,
                testing::ContainsRegex("hyperserve_device_memory_used_bytes\\{device=\"" + gpu +
                                       "\"\\} [1-9]"));
    std::printf("  %s, %s: %d calls\n", gpu.c_str(), description.c_str(), calls[gpu]);
  }
}

TEST_F(Devices, OneOfThemIsServedAlone) {
  const std::string last = gpus_.rbegin()->first;
  auto daemon = Daemon::Start(repository_.path(), {"--device=" + last});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  daemon_ = *std::move(daemon);
  CallAtOnce(4, 10, [&](Client& client) {
    const auto reply = client.Sample(tiny::SampleRows(5, "rk4:4"), Soon());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->info().device(), last);
  });
}

}  // namespace
}  // namespace hyperserve
