// A small HTTP server for probes and scrapes, with a port and threads of its own. A connection
// takes one request of at most 64 KiB, which must arrive within 2 s; its answer must be taken
// within 2 s more. Eight threads answer, so a few slow clients delay nobody.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hyperserve {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

class HttpServer {
 public:
  // A handler by path, for GET and HEAD; other methods are answered 405, other paths 404. Handlers
  // run on the server's threads, several at a time: they must be thread-safe and quick.
  using Handlers = std::map<std::string, std::function<HttpReply()>>;

  // The server accepts connections when Start returns. The host may be in brackets ("[::1]"). Port
  // 0 takes any free one. kUnavailable: the port is taken, or the address is not one of this
  // machine.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           const Handlers& handlers);
  // Stops listening and waits for the handlers that run, but for no client. No handler runs after
  // the destructor.
  ~HttpServer();
  int port() const;  // the real one, where Start was given port 0

 private:
  struct Contents;
  explicit HttpServer(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace hyperserve
