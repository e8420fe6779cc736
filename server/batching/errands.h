// An errand is something that each solver's thread does once, when it has nothing to solve, one
// thread after the other: what a library keeps for each thread is made so before a request needs
// it. Called with the lock of the BatchLoop held. Internal to this folder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace hyperserve {

class Errands {
 public:
  using Steady = std::chrono::steady_clock;

  // Blocks until `seats` threads have done the errand, Stop was called, or it is `until`; then
  // nobody begins it any more, and the one that has begun has ended. One caller at a time.
  void Give(std::unique_lock<std::mutex>& lock, const std::function<void()>& errand, int seats,
            Steady::time_point until);
  // Whether it is the turn of a thread whose last errand is `last`.
  bool Awaits(uint64_t last) const { return errand_ != nullptr && last != number_ && !under_way_; }
  // Does it, without the lock meanwhile. Precondition: Awaits(last).
  void Do(std::unique_lock<std::mutex>& lock, uint64_t& last);
  void Stop();

 private:
  const std::function<void()>* errand_ = nullptr;
  uint64_t number_ = 0;
  int left_ = 0;  // threads
  bool under_way_ = false, stopped_ = false;
  std::condition_variable changed_;
};

}  // namespace hyperserve
