// A small HTTP server for probes and scrapes, with a port and one thread of its own. The thread
// waits for no client, so clients that are silent or slow delay nobody. A connection takes one
// request of at most 64 KiB, which must arrive within 2 s; its answer must be taken within 2 s
// more. Of more than `connections_max` the oldest whose request has not arrived is closed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/net/http_request.h"

namespace hyperserve {

class HttpServer {
 public:
  struct Options {
    std::string host;
    int port = 0;
    int connections_max = 256;
  };

  // The server accepts connections when Start returns. The host may be in brackets ("[::1]"). Port
  // 0 takes any free one. Handlers run on the server's thread, one at a time: they must be quick,
  // and thread-safe against the rest of the process. kUnavailable: the port is taken, or the
  // address is not one of this machine.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           HttpHandlers handlers);
  // Stops listening and waits for the handler that runs, but for no client. No handler runs after
  // the destructor.
  ~HttpServer();
  int port() const;  // the real one, where Start was given port 0

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace hyperserve
