// One address of a daemon: a channel that connects at its first use, and the loop that repeats
// calls as client/retry.h decides. Private to the client library. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/deadline.h"
#include "client/retry.h"

namespace hyperserve {

// Each has a TCP connection of its own, also where several have one address. No TLS, and no HTTP
// proxy.
class Connection {
 public:
  // Connects to nothing yet. `receive_bytes_max`: of one reply; a larger one fails the call with
  // kResourceExhausted.
  Connection(std::string address, int receive_bytes_max);

  // For the stubs, which share it; it lives as long as any of them.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // The outcome of one attempt.
  struct Attempt {
    grpc::Status status;
    // Set by streams: the next attempt goes on after the last row and repeats nothing.
    bool resumable = false;
    bool progressed = false;  // rows arrived; the count of attempts starts again
  };

  // Runs `attempt` on a connected channel with the deadline set, and repeats it where that is safe.
  // Blocks the caller, also between attempts. Failures have the code and message of the last
  // attempt; the message names `request_id` unless it is empty. kUnavailable where there is no
  // connection or where it was closed during the call.
  absl::Status Call(const RetryPolicy& policy, Deadline deadline, const std::string& request_id,
                    const std::function<Attempt(grpc::ClientContext&)>& attempt) const;

 private:
  // True when connected; false when connecting fails or the deadline passes.
  bool Connect(Deadline deadline) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hyperserve
