// Whether a request may wait: a pure function of a snapshot. Internal to this folder.
//
//   Limits    What waits and what is not answered stays within the limits of the options page.
//   Shares    Of several clients each has its share of every limit. One alone leaves an eighth
//             free, so that another finds room. A client that has nothing pending needs no share.
//   Deadline  A request is refused where the work before it, at the measured pace, would take more
//             than half of the time that its own solve leaves of its deadline. What is admitted
//             is in time even if the machine becomes half as fast meanwhile; under overload the
//             solvers still never run dry. An idle solver refuses nobody.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "server/batching/batcher_options.h"
#include "server/batching/work.h"

namespace hyperserve {

// A request that asks for admission.
struct Arrival {
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t macs = 0;
  bool opens_queue = false;   // there is no queue of its spec yet
  double cost = 0;            // predicted MACs, with its share of the fixed cost of evaluations
  double seconds_left = 1e9;  // until its deadline
};

// Taken under the batcher's lock, at one moment.
struct Pending {
  QueueDepth all;          // of all clients
  QueueDepth own;          // of the client that asks
  int64_t own_live = 0;    // its requests that are not answered yet
  int64_t sharers = 1;     // clients that divide the limits
  double cost_before = 0;  // predicted MACs that go before the request
  double pace = 0;         // seconds a MAC on one solver; 0: nothing was measured yet
  bool idle_solver = false;
};

// Not OK: the request is answered with the status at once.
struct Admission {
  // kResourceExhausted: the message names the limit, the load and the way out.
  absl::Status status;
  std::chrono::milliseconds retry_after{0};  // of a refusal: about when there may be room
};

// OK, or kResourceExhausted. Never waits and changes nothing: the caller books what it admits.
Admission DecideAdmission(const Pending& pending, const Arrival& arrival,
                          const BatcherOptions& options);

}  // namespace hyperserve
