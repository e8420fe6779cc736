// How the daemon ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "client/client.h"
#include "client/deadline.h"
#include "core/io/file.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Half a second is enough on an idle machine; a wrong shutdown takes many seconds.
constexpr seconds kPromptly{3};

Deadline Soon() { return Deadline::In(kSoon); }

class Shutdown : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path(), {"--drain_seconds=60"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Shutdown, UnderLoadExitsZeroWithNothingLost) {
  std::atomic<int> answered = 0;
  std::mutex mutex;
  std::vector<absl::Status> failures;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Client client(daemon_->client_options());
      while (true) {
        const auto reply = client.Sample(tiny::SampleRows(3, "rk4:50"), Soon());
        if (!reply.ok()) {
          const std::lock_guard lock(mutex);
          failures.push_back(reply.status());
          return;
        }
        ++answered;
      }
    });
  }
  while (answered < 40) std::this_thread::sleep_for(milliseconds(1));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(), 0);
  for (std::thread& thread : threads) thread.join();
  // Each client was refused with a message or could not connect; no request was cut off.
  for (const absl::Status& status : failures) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), testing::AnyOf(testing::HasSubstr("shutting down"),
                                                              testing::HasSubstr("no connection")));
  }
}

TEST_F(Shutdown, FinishesWhatIsInFlightAndTellsHealth) {
  Client client(daemon_->client_options());
  std::vector<HealthState> states;
  std::atomic<int> seen = 0;
  std::thread watch([&] {
    Client watcher(daemon_->client_options());
    watcher
        .WatchHealth("model/tiny_flow", Soon(),
                     [&](HealthState state) {
                       states.push_back(state);
                       ++seen;
                       return state == HealthState::kServing;
                     })
        .IgnoreError();
  });
  absl::StatusOr<v1::SampleReply> reply = absl::UnknownError("");
  std::thread busy([&] { reply = client.Sample(tiny::SampleRows(16, "rk4:10000"), Soon()); });
  while (seen == 0) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(daemon_->Get("/livez").status, 200);
  EXPECT_EQ(daemon_->Get("/readyz").status, 200);
  daemon_->Signal(SIGTERM);
  watch.join();
  EXPECT_THAT(states, testing::ElementsAre(HealthState::kServing, HealthState::kNotServing));
  EXPECT_EQ(daemon_->WaitForExit(), 0);
  busy.join();
  EXPECT_TRUE(reply.ok()) << reply.status();
}

TEST_F(Shutdown, FinishesAStreamToItsLastChunk) {
  Client client(daemon_->client_options());
  v1::SampleStreamRequest request;
  *request.mutable_sample() = tiny::SampleRows(4000, "rk4:20");
  request.set_chunk_rows(50);
  int64_t rows = 0;
  const auto summary = client.SampleStream(request, Soon(), [&](const v1::SampleChunk& chunk) {
    if (rows == 0) daemon_->Signal(SIGTERM);
    rows += chunk.rows();
    return absl::OkStatus();
  });
  EXPECT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(rows, 4000);
  EXPECT_EQ(daemon_->WaitForExit(), 0);
}

// gRPC's clients keep their connections, and an idle client does not notice that the server ends.
TEST_F(Shutdown, IdleConnectionsDoNotHoldItUp) {
  Client client(daemon_->client_options());
  ASSERT_TRUE(client.ListModels(Soon()).ok());
  EXPECT_FALSE(client.Publish(tiny::PublishRequest(tiny::Candidate(-1.0)), Soon()).ok());
  std::atomic<bool> watching = false;
  std::thread watch([&] {
    Client watcher(daemon_->client_options());
    watcher
        .WatchHealth("", Soon(),
                     [&](HealthState state) {
                       watching = true;
                       return state == HealthState::kServing;
                     })
        .IgnoreError();
  });
  while (!watching) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = std::chrono::steady_clock::now();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromptly);
  watch.join();
}

TEST_F(Shutdown, ACandidateThatIsBeingExaminedIsAnsweredAndForgotten) {
  const std::string folder =
      HypersolverFolder(repository_.path() + "/" + tiny::kFlow, {.method = Method::kHeun});
  ClientOptions options = daemon_->client_options();
  options.retry.attempts_max = 1;
  absl::Status status;
  std::thread publisher([&] {
    v1::PublishHypersolverRequest slow = tiny::PublishRequest(tiny::SlowCandidate());
    slow.set_allow_narrower(true);
    status = Client(options).Publish(slow, Soon()).status();
  });
  while (ListGenerations(folder).size() < 2) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = std::chrono::steady_clock::now();
  daemon_->Signal(SIGTERM);
  publisher.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nothing was changed"));
  EXPECT_EQ(daemon_->WaitForExit(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromptly);
  EXPECT_EQ(ListGenerations(folder), std::vector<int64_t>{1});
  EXPECT_EQ(*ReadActive(folder), 1);
}

TEST(ShutdownWhileLoading, EndsAtTheNextStep) {
  TemporaryFolder repository;
  tiny::WriteSlowRepository(repository.path());
  auto daemon = Daemon::StartLoading(repository.path());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ASSERT_EQ((*daemon)->Get("/readyz").body, "loading\n");
  const auto begin = std::chrono::steady_clock::now();
  (*daemon)->Signal(SIGTERM);
  EXPECT_EQ((*daemon)->WaitForExit(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromptly);
  EXPECT_THAT((*daemon)->Log(), testing::Not(testing::HasSubstr("event=ready")));
}

// A process that ignores SIGTERM loses it unless it is held back, as process 1 does without a
// handler.
TEST(ShutdownWhileLibrariesLoad, ASignalBeforeMainIsNotLost) {
  TemporaryFolder repository;
  ASSERT_TRUE(fixture::WriteTinyRepository(repository.path()).ok());
  const std::string out = repository.path() + "/out", log = repository.path() + "/log";
  auto* const before = std::signal(SIGTERM, SIG_IGN);
  Process daemon({HYPERSERVE_BINARY, "--models=" + repository.path(), "--address=127.0.0.1:0",
                  "--admin_address=127.0.0.1:0", "--http_address=127.0.0.1:0"},
                 out, log,
                 {{"LD_PRELOAD", EARLY_SIGNAL},
                  // The sanitizer wants to be the first library.
                  {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  std::signal(SIGTERM, before);
  EXPECT_EQ(daemon.Wait(kSoon), 0);
  EXPECT_THAT(ReadFile(log, 1 << 20).value(), testing::HasSubstr("event=signal number=15"));
}

// The only child of a process; 0: there is none yet.
pid_t ChildOf(pid_t parent) {
  const std::string id = std::to_string(parent);
  pid_t child = 0;
  std::ifstream("/proc/" + id + "/task/" + id + "/children") >> child;
  return child;
}

pid_t WaitForChildOf(pid_t parent) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (ChildOf(parent) == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return ChildOf(parent);
}

// As in the image: tini is process 1 of a namespace, the daemon its child. At the first of these
// moments the daemon's libraries are still being loaded, at the last it serves.
TEST(ShutdownInAContainer, TheInitEndsItFromTheFirstMoment) {
  if (std::string(TINI).empty()) GTEST_SKIP() << "no tini here";
  TemporaryFolder repository;
  Process allowed({"/usr/bin/unshare", "--fork", "--pid", "--mount-proc", "/usr/bin/true"},
                  repository.path() + "/out", repository.path() + "/log");
  if (allowed.Wait(kSoon) != std::optional<int>(0)) {
    GTEST_SKIP() << "no right to a PID namespace here";
  }
  ASSERT_TRUE(fixture::WriteTinyRepository(repository.path()).ok());
  for (const milliseconds moment :
       {milliseconds(0), milliseconds(5), milliseconds(30), milliseconds(100), milliseconds(800)}) {
    SCOPED_TRACE(moment.count());
    Process namespaced(
        {"/usr/bin/unshare", "--fork", "--pid", "--mount-proc", "--kill-child", TINI, "-s", "--",
         HYPERSERVE_BINARY, "--models=" + repository.path(), "--address=127.0.0.1:0",
         "--admin_address=127.0.0.1:0", "--http_address=127.0.0.1:0"},
        repository.path() + "/out", repository.path() + "/log");
    const pid_t init = WaitForChildOf(namespaced.id());
    ASSERT_NE(init, 0);
    ASSERT_NE(WaitForChildOf(init), 0) << "tini starts the daemon";
    std::this_thread::sleep_for(moment);
    ASSERT_EQ(kill(init, SIGTERM), 0);
    const std::optional<int> ended = namespaced.Wait(kSoon);
    ASSERT_TRUE(ended) << "SIGTERM was lost";
    EXPECT_THAT(*ended, testing::AnyOf(0, 128 + SIGTERM));
  }
}

TEST_F(Shutdown, ASecondSignalEndsItAtOnce) {
  Client client(daemon_->client_options());
  absl::Status status;
  std::thread busy(
      [&] { status = client.Solve(tiny::SolveRows(4096, "rk4:10000/double"), Soon()).status(); });
  std::this_thread::sleep_for(milliseconds(300));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(milliseconds(300)), std::nullopt) << "it drains";
  const auto begin = std::chrono::steady_clock::now();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(), 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromptly);
  busy.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace hyperserve
