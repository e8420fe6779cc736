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

TEST(StopDeathTest, OneThatDoesNotLookIsEnded) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EXIT(
        {
          StopOnSignals();
          raise(signal);
          for (;;) {
          }
        },
        testing::ExitedWithCode(128 + signal), "in the middle of an operation");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  }
}

}  // namespace
}  // namespace hyperserve
