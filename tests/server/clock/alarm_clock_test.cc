// Which acts run, in which order, and which never do.
#include "server/clock/alarm_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace hyperserve {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(AlarmClockTest, ActsRunInTheOrderOfTheirTimes) {
  std::vector<int> order;
  std::promise<void> last;
  AlarmClock alarms;
  const auto begin = std::chrono::steady_clock::now();
  alarms.Set(milliseconds(40), [&] {
    order.push_back(3);
    last.set_value();
  });
  alarms.Set(milliseconds(20), [&] { order.push_back(2); });  // before what the thread waits for
  alarms.Set(milliseconds(-1), [&] { order.push_back(1); });
  last.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(40));
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(AlarmClockTest, WhatIsCalledOffNeverRunsAndIsDestroyedAtOnce) {
  std::atomic<bool> ran = false;
  const auto held = std::make_shared<int>();
  AlarmClock alarms;
  const AlarmClock::Ticket off = alarms.Set(milliseconds(10), [&ran, held] { ran = true; });
  alarms.CallOff(off);
  EXPECT_EQ(held.use_count(), 1);
  std::promise<void> later;
  alarms.Set(milliseconds(20), [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(ran);
  alarms.CallOff(off);
  alarms.CallOff({});
}

TEST(AlarmClockTest, AnActMaySetAndCallOff) {
  AlarmClock alarms;
  std::promise<void> done;
  const AlarmClock::Ticket never = alarms.Set(hours(1), [] { FAIL(); });
  alarms.Set(milliseconds(0), [&] {
    alarms.CallOff(never);
    alarms.Set(milliseconds(1), [&] { done.set_value(); });
  });
  done.get_future().wait();
}

TEST(AlarmClockTest, ItsEndWaitsForTheActThatRunsAndDropsTheOthers) {
  std::atomic<bool> ended = false;
  const auto held = std::make_shared<int>();
  {
    AlarmClock alarms;
    std::promise<void> began;
    alarms.Set(hours(1), [held] { FAIL(); });
    alarms.Set(milliseconds(0), [&] {
      began.set_value();
      std::this_thread::sleep_for(milliseconds(20));
      ended = true;
    });
    began.get_future().wait();
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(AlarmClockTest, ManyThreadsSetAndCallOff) {
  std::atomic<int> ran = 0;
  constexpr int kThreads = 4, kAlarms = 2000;
  AlarmClock alarms;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kAlarms; ++n) {
        alarms.Set(std::chrono::microseconds(n % 7), [&] { ++ran; });
        alarms.CallOff(alarms.Set(hours(1), [&] { ran += kThreads * kAlarms; }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (ran < kThreads * kAlarms) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(ran, kThreads * kAlarms);
}

}  // namespace
}  // namespace hyperserve
