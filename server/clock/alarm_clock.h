// Calls back at given times, for limits that most calls never reach. To set an alarm and to call it
// off wakes no other thread, unless it is due before all others; an alarm of gRPC that is called
// off wakes one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace hyperserve {

// Thread-safe; an act may set alarms and call them off.
class AlarmClock {
 public:
  // Must not throw, and must not destroy the alarm clock.
  using Act = std::function<void()>;
  class Ticket {  // one that was not given by Set names no alarm
    friend class AlarmClock;
    std::chrono::steady_clock::time_point at_;
    uint64_t number_ = 0;
  };

  // Starts the thread.
  AlarmClock();
  // Waits for the act that runs. Those that are still to come are destroyed and never run.
  ~AlarmClock();
  AlarmClock(const AlarmClock&) = delete;

  // Runs `act` once, on the alarm clock's thread and with no lock held, when `after` has passed; at
  // once where that is not positive. All alarms share the thread, so `act` must not wait.
  Ticket Set(std::chrono::steady_clock::duration after, Act act);

  // Destroys the act, so that it never runs. Does nothing where it runs already, has run or was
  // called off; does not wait for one that runs.
  void CallOff(const Ticket& ticket);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;  // Run waits on it
  // All below guarded by mutex_.
  std::map<std::pair<Time, uint64_t>, Act> coming_;
  uint64_t last_number_ = 0;
  Time sleeps_until_ = Time::min();  // min: the thread is awake and looks again before it sleeps
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all above
};

}  // namespace hyperserve
