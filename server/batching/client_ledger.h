// What each client has in the batcher, and how much of the solvers' time it was given. One client
// must not take what others need: admission.h gives each its share of the limits, batch_policy.h
// its share of time. No threads, no locks, no clock: a caller holds the batcher's lock. Internal to
// this folder.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {

// Predicted MACs by the size of the requests that they belong to: short requests go before long
// ones, so a request waits for those of its size and below.
class CostBySize {
 public:
  // `size`: the predicted MACs of the request until its first row finishes.
  // Each Subtract takes back what one Add of the same numbers added. A class never falls
  // below 0, whatever rounding leaves.
  void Add(double size, double cost) { cost_[ClassOf(size)] += cost; }
  // Precondition: Add got the same numbers before.
  void Subtract(double size, double cost);
  // For an account without requests: it forgets what rounding left.
  void Clear() { cost_ = {}; }
  // The cost of all requests of this size and below, in MACs.
  double UpTo(double size) const;

 private:
  static size_t ClassOf(double size);
  std::array<double, 64> cost_{};  // by powers of two
};

// The account of one client. The ledger makes and changes it, under the batcher's lock; requests
// and queues share it, so it lives at least as long as they do.
struct ClientAccount {
  const ClientKey key;
  int64_t live = 0;        // requests that are not answered yet
  QueueDepth held;         // as QueueDepth of all clients; queues: those that it opened
  CostBySize pending;      // of the live requests
  double served = 0;       // seconds of solvers, times the names that divide its peer's share
  int64_t lead = 0;        // turns that it was served beyond the one served least; set by Rank
  Clock::TimePoint asked;  // last
};

// Belongs to one BatchLoop.
class ClientLedger {
 public:
  // The account of a client that asks for admission now. It is forgotten a second after its last
  // call, once nothing of it is in the batcher. Beyond a bound on peers, and on names of one peer,
  // further ones share an account.
  std::shared_ptr<ClientAccount> Enter(const ClientKey& key, Clock::TimePoint now);

  // How many clients divide a limit, as this one sees it: the peers that asked within the last
  // second, times the names of its own peer.
  int64_t Sharers(const ClientAccount& client) const;

  // Counts a live request of the client; `size` and `cost` as CostBySize has them. Each Begin has
  // one End, with the same numbers, when the request is answered.
  void Begin(ClientAccount& client, const Work& work, double size, double cost);
  // Precondition: a Begin with the same numbers has no End yet.
  void End(ClientAccount& client, const Work& work, double size, double cost);

  // Adds time that a solver spent on the client's rows.
  void Charge(ClientAccount& client, double seconds) const;
  // Sets the lead of every client, in units of `turn`. Called before each decision, which reads
  // the leads.
  void Rank(std::chrono::nanoseconds turn);

  // The predicted MACs that are solved before a request of this client ends, where each client gets
  // the same time: all that goes before it of its own, and of each other no more than that.
  double CostBefore(const ClientAccount& client, double size, double cost) const;

 private:
  using Names = std::map<std::string, std::shared_ptr<ClientAccount>>;
  void Forget(Clock::TimePoint now);
  double LeastServed() const;

  std::map<std::string, Names> peers_;
  Clock::TimePoint next_forget_;
};

}  // namespace hyperserve
