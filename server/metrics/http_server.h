// A small HTTP server for probes and scrapes, on a port and threads of its own. Its handlers must
// be thread-safe and quick. Connections take one request each and are bounded in time and bytes, so
// that a handful of slow clients delays nobody.
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
  // By path, for GET and HEAD; other methods are answered 405.
  using Handlers = std::map<std::string, std::function<HttpReply()>>;

  // Listens when this returns. The host may stand in brackets ("[::1]"). Port 0: any free one.
  // kUnavailable in words where the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           const Handlers& handlers);
  // Stops listening, waits for handlers that run but for no client. No handler runs after it.
  ~HttpServer();
  int port() const;

 private:
  struct Contents;
  explicit HttpServer(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace hyperserve
