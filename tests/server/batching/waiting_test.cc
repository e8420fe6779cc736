// Solvers that wait for work: which one gets it, and that none sleeps through it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "core/engine/device_runtime.h"
#include "server/batching/batch_loop.h"
#include "server/batching/work.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Steady = std::chrono::steady_clock;

// One thread a seat, each of which waits for work once.
class WaitingTest : public BatchLoopTest {
 protected:
  ~WaitingTest() override {
    loop_->Stop();
    for (std::thread& thread : threads_) thread.join();
  }

  void StartWaiting(const TestOptions& options) {
    Start(options);
    woken_ = std::vector<std::atomic<bool>>(static_cast<size_t>(options.solvers));
  }
  // Returns when the seat's thread waits, but for a machine that stalls.
  void Wait(size_t seat) {
    while (Step(seat)) continue;
    std::atomic<bool> begun = false;
    threads_.emplace_back([this, seat, &begun] {
      begun = true;
      loop_->WaitForWork(seats_[seat]);
      woken_[seat] = true;
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(10));
  }
  bool WokenSoon(size_t seat) {
    const auto until = Steady::now() + seconds(10);
    while (!woken_[seat] && Steady::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return woken_[seat];
  }

  std::vector<std::atomic<bool>> woken_;
  std::vector<std::thread> threads_;
};

TEST_F(WaitingTest, WorkGoesToTheSeatThatCameLast) {
  int last = 0;
  constexpr int kTrials = 20;
  for (int i = 0; i < kTrials; ++i) {
    StartWaiting({.solvers = 3});
    for (const size_t seat : {2, 0, 1}) Wait(seat);
    Answer answer = Submit(MakeWork(1));
    while (!woken_[0] && !woken_[1] && !woken_[2]) std::this_thread::yield();
    last += woken_[1] ? 1 : 0;
    while (Step(1)) continue;
    EXPECT_TRUE(Ready(answer));
    loop_->Stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  EXPECT_GE(last, kTrials - 4) << "a machine that stalls may change the order now and then";
}

TEST_F(WaitingTest, EachOfTwoRequestsWakesASeat) {
  StartWaiting({.solvers = 2});
  Wait(0);
  Wait(1);
  Answer a = Submit(MakeWork(1));
  Answer b = Submit(MakeOtherWork(1));
  EXPECT_TRUE(WokenSoon(0));
  EXPECT_TRUE(WokenSoon(1));
  while (Step(0)) continue;
  EXPECT_TRUE(Ready(a) && Ready(b));
}

// Long before the time for which it looks out. On a machine that gives it no core it sleeps.
TEST_F(WaitingTest, ASeatThatLooksOutSeesWorkAndTheEnd) {
  StartWaiting({.solvers = 2, .watch_max = seconds(1000)});
  Wait(0);
  Answer answer = Submit(MakeWork(1));
  EXPECT_TRUE(WokenSoon(0));
  while (Step(0)) continue;
  EXPECT_TRUE(Ready(answer));
  Wait(1);
  loop_->Stop();
  EXPECT_TRUE(WokenSoon(1));
}

// What nobody has time for is left, and Stop ends the wait.
TEST_F(WaitingTest, AnErrandThatNoSeatTakes) {
  Start({.solvers = 2});
  int done = 0;
  loop_->DoOnSeats([&] { ++done; }, milliseconds(5));
  std::thread giver([&] { loop_->DoOnSeats([&] { ++done; }, seconds(1000)); });
  std::this_thread::sleep_for(milliseconds(5));
  loop_->Stop();
  giver.join();
  loop_->DoOnSeats([&] { ++done; }, seconds(1000));
  EXPECT_EQ(done, 0);
}

class ErrandTest : public BatcherTest {};

TEST_F(ErrandTest, EachSolverDoesItOnceOneAfterTheOther) {
  for (const auto watch : {milliseconds(0), milliseconds(1000)}) {
    Start({.solvers = 3, .watch_max = watch});
    std::set<std::thread::id> threads;
    std::atomic<int> at_once = 0;
    int calls = 0;
    for (int i = 0; i < 2; ++i) {
      batcher_->DoOnSolvers([&](DeviceRuntime& runtime) {
        EXPECT_EQ(&runtime, runtime_.get());
        EXPECT_EQ(++at_once, 1);
        std::this_thread::sleep_for(milliseconds(2));
        threads.insert(std::this_thread::get_id());
        ++calls;
        --at_once;
      });
    }
    EXPECT_EQ(calls, 6);
    EXPECT_EQ(threads.size(), 3u);
    EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
    Answer answer = Submit(MakeWork(1));
    EXPECT_TRUE(answer.get().ok());
  }
}

TEST_F(ErrandTest, WorkGoesFirst) {
  Start({.solvers = 1});
  control_->CloseGate();
  Answer running = Submit(MakeWork(1));
  control_->WaitForBatches(1);
  Answer next = Submit(MakeOtherWork(1));
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(20));
    control_->OpenGate();
  });
  bool answered = false;
  batcher_->DoOnSolvers([&](DeviceRuntime&) { answered = Ready(running) && Ready(next); });
  EXPECT_TRUE(answered);
  opener.join();
}

}  // namespace
}  // namespace hyperserve
