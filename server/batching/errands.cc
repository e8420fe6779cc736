#include "server/batching/errands.h"

namespace hyperserve {

void Errands::Give(std::unique_lock<std::mutex>& lock, const std::function<void()>& errand,
                   int seats, Steady::time_point until) {
  errand_ = &errand;
  left_ = seats;
  ++number_;
  changed_.wait_until(lock, until, [this] { return left_ == 0 || stopped_; });
  errand_ = nullptr;
  changed_.wait(lock, [this] { return !under_way_; });
}

void Errands::Do(std::unique_lock<std::mutex>& lock, uint64_t& last) {
  const std::function<void()>& errand = *errand_;
  last = number_;
  under_way_ = true;
  lock.unlock();
  errand();
  lock.lock();
  under_way_ = false;
  --left_;
  changed_.notify_all();
}

void Errands::Stop() {
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace hyperserve
