#include "server/batching/client_ledger.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace hyperserve {
namespace {

// A client that asked this long ago still has its share: its next call comes soon.
constexpr std::chrono::seconds kRemembered{1};
constexpr std::chrono::milliseconds kForgetEvery{100};
// Each account costs a look at every admission. More peers or names than these share one account.
constexpr size_t kPeersMax = 256, kNamesMax = 32;

// The account of all that are over a bound has the empty name.
template <class Map>
std::string Bounded(const Map& map, const std::string& key, size_t most) {
  return map.contains(key) || map.size() < most ? key : "";
}

}  // namespace

size_t CostBySize::ClassOf(double size) {
  return static_cast<size_t>(std::clamp(std::ilogb(std::max(size, 1.0)), 0, 63));
}

void CostBySize::Subtract(double size, double cost) {
  double& left = cost_[ClassOf(size)];
  left = std::max(0.0, left - cost);
}

double CostBySize::UpTo(double size) const {
  return std::accumulate(cost_.begin(), cost_.begin() + static_cast<ptrdiff_t>(ClassOf(size)) + 1,
                         0.0);
}

std::shared_ptr<ClientAccount> ClientLedger::Enter(const ClientKey& key, Clock::TimePoint now) {
  if (now >= next_forget_) Forget(now);
  const std::string peer = Bounded(peers_, key.peer, kPeersMax);
  Names& names = peers_[peer];
  const std::string name = Bounded(names, key.name, kNamesMax);
  std::shared_ptr<ClientAccount>& client = names[name];
  if (client == nullptr) {
    client = std::make_shared<ClientAccount>(ClientAccount{.key = {.peer = peer, .name = name}});
  }
  // Who comes back does not claim the time that it did not ask for.
  if (client->live == 0) client->served = std::max(client->served, LeastServed());
  client->asked = now;
  return client;
}

void ClientLedger::Forget(Clock::TimePoint now) {
  next_forget_ = now + kForgetEvery;
  for (auto& [peer, names] : peers_) {
    std::erase_if(names, [&](const auto& entry) {
      const ClientAccount& client = *entry.second;
      return client.live == 0 && client.held.queues == 0 && now >= client.asked + kRemembered;
    });
  }
  std::erase_if(peers_, [](const auto& entry) { return entry.second.empty(); });
}

int64_t ClientLedger::Sharers(const ClientAccount& client) const {
  const auto names = peers_.find(client.key.peer);
  const size_t own = names == peers_.end() ? 1 : names->second.size();
  return static_cast<int64_t>(peers_.size() * own);
}

void ClientLedger::Begin(ClientAccount& client, const Work& work, double size, double cost) {
  ++client.live;
  client.held.bytes += work.bytes;
  client.held.macs += work.macs;
  client.pending.Add(size, cost);
}

void ClientLedger::End(ClientAccount& client, const Work& work, double size, double cost) {
  --client.live;
  client.held.bytes -= work.bytes;
  client.held.macs -= work.macs;
  client.pending.Subtract(size, cost);
  if (client.live == 0) client.pending.Clear();  // drops what rounding left
}

void ClientLedger::Charge(ClientAccount& client, double seconds) const {
  const auto names = peers_.find(client.key.peer);
  const double divided = names == peers_.end() ? 1 : static_cast<double>(names->second.size());
  client.served += seconds * divided;
}

double ClientLedger::LeastServed() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [peer, names] : peers_) {
    for (const auto& [name, client] : names) {
      if (client->live > 0) least = std::min(least, client->served);
    }
  }
  return std::isfinite(least) ? least : 0;
}

void ClientLedger::Rank(std::chrono::nanoseconds turn) {
  const double least = LeastServed();
  const double unit = std::max(std::chrono::duration<double>(turn).count(), 1e-6);
  for (auto& [peer, names] : peers_) {
    for (auto& [name, client] : names) {
      client->lead = static_cast<int64_t>(std::clamp((client->served - least) / unit, 0.0, 1e15));
    }
  }
}

double ClientLedger::CostBefore(const ClientAccount& asking, double size, double cost) const {
  const double own = asking.pending.UpTo(size);
  double before = own;
  for (const auto& [peer, names] : peers_) {
    for (const auto& [name, client] : names) {
      if (client.get() == &asking || client->live == 0) continue;
      before += std::min(client->pending.UpTo(size), own + cost);
    }
  }
  return before;
}

}  // namespace hyperserve
