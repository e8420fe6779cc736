#include "server/clock/clock.h"

namespace hyperserve {
namespace {

class RealClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

void Clock::WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                      TimePoint until) const {
  changed.wait_until(lock, until);
}

const Clock& Clock::Real() {
  static const RealClock clock;
  return clock;
}

}  // namespace hyperserve
