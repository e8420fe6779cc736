// A program that was asked to stop ends within a second, whatever it is doing.
#include "programs/stop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace hyperserve {
namespace {

TEST(StopDeathTest, ALoopThatLooksEndsByItself) {
  EXPECT_EXIT(
      {
        StopOnSignals();
        raise(SIGINT);
        _exit(StopRequested() && Stopped().code() == absl::StatusCode::kCancelled ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

// It sleeps, since the thread sanitizer holds a signal back from a thread that makes no call.
TEST(StopDeathTest, OneThatDoesNotLookIsEnded) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EXIT(
        {
          StopOnSignals();
          raise(signal);
          for (;;) usleep(1);
        },
        testing::ExitedWithCode(128 + signal), "in the middle of an operation");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  }
}

TEST(StopDeathTest, NothingIsWrittenAfterARequest) {
  EXPECT_EXIT(
      {
        StopOnSignals();
        raise(SIGTERM);
        const absl::Status status = WriteUnlessStopped([] { return absl::OkStatus(); });
        _exit(status.code() == absl::StatusCode::kCancelled ? StopExitCode() : 1);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

// Whoever writes for longer than a second ends his writing; what follows is ended.
TEST(StopDeathTest, ARequestWhileResultsAreWrittenWaitsForThem) {
  EXPECT_EXIT(
      {
        StopOnSignals();
        const absl::Status status = WriteUnlessStopped([] {
          raise(SIGINT);
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          (void)!write(STDERR_FILENO, "all of it, ", 11);
          return absl::OkStatus();
        });
        if (!status.ok()) _exit(1);
        for (;;) usleep(1);
      },
      testing::ExitedWithCode(128 + SIGINT), "all of it, .*what was written before is whole");
}

}  // namespace
}  // namespace hyperserve
