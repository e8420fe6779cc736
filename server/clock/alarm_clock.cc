#include "server/clock/alarm_clock.h"

namespace hyperserve {

AlarmClock::AlarmClock() : thread_([this] { Run(); }) {}

AlarmClock::~AlarmClock() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

AlarmClock::Ticket AlarmClock::Set(std::chrono::steady_clock::duration after, Act act) {
  Ticket ticket;
  ticket.at_ = std::chrono::steady_clock::now() + after;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    ticket.number_ = ++last_number_;
    coming_.emplace(std::pair(ticket.at_, ticket.number_), std::move(act));
    first = ticket.at_ < sleeps_until_;
  }
  if (first) changed_.notify_one();
  return ticket;
}

void AlarmClock::CallOff(const Ticket& ticket) {
  decltype(coming_)::node_type off;  // destroyed with no lock held: so is its act
  const std::lock_guard lock(mutex_);
  off = coming_.extract({ticket.at_, ticket.number_});
}

void AlarmClock::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto first = coming_.begin();
    if (first == coming_.end()) {
      sleeps_until_ = Time::max();
      changed_.wait(lock);
    } else if (first->first.first > std::chrono::steady_clock::now()) {
      sleeps_until_ = first->first.first;
      changed_.wait_until(lock, sleeps_until_);
    } else {
      auto due = coming_.extract(first);
      lock.unlock();
      due.mapped()();
      due = {};
      lock.lock();
    }
    sleeps_until_ = Time::min();
  }
}

}  // namespace hyperserve
