#include "server/net/connection_ledger.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace hyperserve {
namespace {

// More would cost memory and give nothing.
constexpr int64_t kAdminMost = 64, kHttpMost = 256;

}  // namespace

ConnectionShares SharesOf(int64_t descriptors) {
  const auto share = [descriptors](int64_t part, int64_t most) {
    return std::clamp<int64_t>(descriptors / part, 4, most);
  };
  return {
      .calls = share(2, descriptors), .admin = share(16, kAdminMost), .http = share(8, kHttpMost)};
}

ConnectionLedger::ConnectionLedger(ConnectionLimits limits, Identify identify)
    : limits_(limits), identify_(std::move(identify)) {}

ConnectionLedger::Verdict ConnectionLedger::Judge(const std::string& peer) const {
  if (static_cast<int64_t>(open_.size()) >= limits_.all_max) return Verdict::kTooMany;
  const auto held = of_peer_.find(peer);
  const bool fits = held == of_peer_.end() || held->second < limits_.peer_max;
  return fits ? Verdict::kTaken : Verdict::kTooManyOfPeer;
}

ConnectionLedger::Verdict ConnectionLedger::Take(int fd, const std::string& peer) {
  // The descriptor was given anew, so what stood there is closed.
  if (const auto old = open_.find(fd); old != open_.end()) Forget(old);
  Verdict verdict = Judge(peer);
  if (verdict != Verdict::kTaken) {
    Sweep();
    verdict = Judge(peer);
  }
  if (verdict == Verdict::kTaken) {
    open_.emplace(fd, Holding{.identity = identify_(fd), .peer = peer});
    ++of_peer_[peer];
  }
  return verdict;
}

int64_t ConnectionLedger::Count() {
  Sweep();
  return static_cast<int64_t>(open_.size());
}

void ConnectionLedger::Sweep() {
  for (auto one = open_.begin(); one != open_.end();) {
    const auto here = one++;
    if (identify_(here->first) != here->second.identity) Forget(here);
  }
}

void ConnectionLedger::Forget(std::map<int, Holding>::iterator holding) {
  const auto held = of_peer_.find(holding->second.peer);
  if (--held->second == 0) of_peer_.erase(held);
  open_.erase(holding);
}

uint64_t SocketAt(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? facts.st_ino : 0;
}

}  // namespace hyperserve
