// One address of a daemon: a channel that connects when it is first used, and the loop that tries a
// call again where client/retry.h says so. Private to the client library.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/deadline.h"
#include "client/retry.h"

namespace hyperserve {

class Connection {
 public:
  Connection(std::string address, int receive_bytes_max);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // What an attempt left behind.
  struct Attempt {
    grpc::Status status;
    // Asking again repeats nothing that has arrived: set by streams, whose next attempt goes on
    // after the last row.
    bool resumable = false;
    bool progressed = false;  // something new arrived: the count of attempts starts again
  };

  // Runs `attempt` on a connected channel with the deadline set, again where it is safe.
  // `request_id` is named in the message of a failure; empty: the call has none.
  absl::Status Call(const RetryPolicy& policy, Deadline deadline, const std::string& request_id,
                    const std::function<Attempt(grpc::ClientContext&)>& attempt) const;

 private:
  // True when connected; false after a failed attempt to connect or at the deadline.
  bool Connect(Deadline deadline) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hyperserve
