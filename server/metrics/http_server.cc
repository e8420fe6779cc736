#include "server/metrics/http_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

constexpr int kMethodNotAllowed = 405;

}  // namespace

struct HttpServer::Contents {
  httplib::Server server;
  std::thread thread;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              const Handlers& handlers) {
  auto contents = std::make_unique<Contents>();
  httplib::Server& server = contents->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(2); };
  server.set_keep_alive_max_count(1);  // a scraper that keeps its connection would hold a thread
  // The library's default shares a port that another daemon already has.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const auto refuse = [](const httplib::Request& request, httplib::Response& response) {
    response.status = kMethodNotAllowed;
    response.set_header("Allow", "GET, HEAD");
    response.set_content(absl::StrCat(request.method, " is not taken here; use GET\n"),
                         "text/plain; charset=utf-8");
  };
  for (const auto& [path, handler] : handlers) {
    server.Post(path, refuse).Put(path, refuse).Patch(path, refuse);
    server.Delete(path, refuse).Options(path, refuse);
    server.Get(path, [handler = handler](const httplib::Request&, httplib::Response& response) {
      const HttpReply reply = handler();
      response.status = reply.status;
      response.set_content(reply.body, reply.content_type.c_str());
    });
  }
  contents->port = port;
  const bool bound = port == 0 ? (contents->port = server.bind_to_any_port(host)) > 0
                               : server.bind_to_port(host, port);
  if (!bound) {
    return absl::UnavailableError(absl::StrCat("cannot listen on http address ", host, ":", port,
                                               ": the port is taken or the address is not ours"));
  }
  contents->thread = std::thread([&server] { server.listen_after_bind(); });
  // stop() does nothing before the loop runs, so the destructor could wait for ever.
  while (!server.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(contents)));
}

HttpServer::HttpServer(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}

HttpServer::~HttpServer() {
  contents_->server.stop();
  contents_->thread.join();
}

int HttpServer::port() const { return contents_->port; }

}  // namespace hyperserve
