// A TCP port that we accept on ourselves, so that connections can be counted and a process without
// descriptors goes on accepting (and closing) instead of going deaf.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/net/descriptors.h"

namespace hyperserve {

// Used by one thread at a time.
class ListeningSocket {
 public:
  // One socket for each address that the host has ("localhost" may have two), all on one port. The
  // host may be in brackets ("[::1]"). Port 0 takes any free one. Ports are never shared with
  // another process. kUnavailable: the port is taken, or no address is one of this machine.
  static absl::StatusOr<std::vector<ListeningSocket>> Open(const std::string& host, int port);

  // The real one, where Open was given port 0.
  int port() const { return port_; }
  // For poll; it belongs to this object.
  int fd() const { return socket_.get(); }

  // A connection that waits, non-blocking and closed on exec; empty: none waits now, or there was
  // no descriptor for it. In the latter case it was closed at once: a spare descriptor is held for
  // that.
  Descriptor Accept();

 private:
  ListeningSocket(Descriptor socket, int port);

  Descriptor socket_;
  int port_ = 0;
  Descriptor spare_;
};

// Wakes a thread that polls. Thread-safe.
class Wake {
 public:
  Wake();
  int fd() const { return event_.get(); }  // readable from the first Call on
  // Never waits, and is never taken back: one Wake ends one loop.
  void Call() const;

 private:
  Descriptor event_;
};

}  // namespace hyperserve
