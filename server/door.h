// The door of a gRPC server: accepts its connections, within limits, and hands them over. gRPC's
// own listener has no limit of connections, and goes deaf for good when the process runs out of
// descriptors (CVE-2023-4785).
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "server/net/connection_ledger.h"
#include "server/net/descriptors.h"
#include "server/net/listening_socket.h"

namespace hyperserve {

// One thread for each door; it never waits for a client, and closes what it refuses at once.
class Door {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  // Called for a connection that was closed: "all" or "peer", the limit that it would have passed,
  // on the door's thread; "headers" where it sent too many of them, on any thread.
  using Refused = std::function<void(std::string_view limit)>;

  // Accepts at once, on a thread of its own. The server of the acceptor runs already.
  Door(std::vector<ListeningSocket> sockets, std::unique_ptr<Acceptor> acceptor,
       ConnectionLimits limits, Refused refused);
  ~Door();  // calls Close
  // Accepts no more. Connections that were handed over belong to the server. A second call does
  // nothing.
  void Close();

  // Connections that are open now. Thread-safe.
  int64_t connections();

 private:
  void Run();
  void Admit(Descriptor connection);

  std::vector<ListeningSocket> sockets_;
  const std::unique_ptr<Acceptor> acceptor_;
  const Refused refused_;
  const Wake wake_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  ConnectionLedger ledger_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace hyperserve
