// Who holds how many connections of a port. The descriptors belong to gRPC, which does not say when
// it closes one; the ledger looks itself, and only when a limit is reached.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace hyperserve {

// Of one port. Both inclusive.
struct ConnectionLimits {
  int64_t all_max = 0;   // connections at once
  int64_t peer_max = 0;  // of one client address, so that one client cannot take them all
};

// The shares of a process that may hold `descriptors`: half for calls, a sixteenth for Admin, an
// eighth for HTTP. The rest is for files, threads and libraries. Pure.
struct ConnectionShares {
  int64_t calls, admin, http;
};
// At least 4 for each; at most 64 for Admin and 256 for HTTP.
ConnectionShares SharesOf(int64_t descriptors);

// Used by one thread.
class ConnectionLedger {
 public:
  // Names what is open at a descriptor; 0: nothing.
  using Identify = std::function<uint64_t(int fd)>;

  // `identify` is SocketAt but in tests.
  ConnectionLedger(ConnectionLimits limits, Identify identify);

  // Of the two limits that of all connections is told first.
  enum class Verdict { kTaken, kTooMany, kTooManyOfPeer };
  // Takes the connection into the ledger if the limits allow. `peer`: the address without the port.
  Verdict Take(int fd, const std::string& peer);

  // Connections that are open now.
  int64_t Count();

 private:
  struct Holding {
    uint64_t identity;
    std::string peer;
  };
  void Sweep();  // forgets what was closed
  void Forget(std::map<int, Holding>::iterator holding);
  Verdict Judge(const std::string& peer) const;

  const ConnectionLimits limits_;
  const Identify identify_;
  std::map<int, Holding> open_;
  std::map<std::string, int64_t> of_peer_;
};

// The number of the socket that is open at `fd`, unique on this machine while it lives; 0: none.
uint64_t SocketAt(int fd);

}  // namespace hyperserve
