#include "server/metrics/http_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

constexpr int kMethodNotAllowed = 405;
constexpr size_t kThreads = 8;  // more than there are slow clients at a time
// Time for a whole request to arrive, and for its answer to leave. The library's own limits are for
// each read, so a client that sends byte by byte could hold a thread for ever.
constexpr std::chrono::seconds kArrivalLimit{2}, kDepartureLimit{2};
constexpr std::chrono::milliseconds kEndingPoll{50};
constexpr size_t kRequestBytesMax = 64 << 10;
constexpr size_t kPayloadBytesMax = 16 << 10;

// One connection with one request, bounded in time and bytes.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(socket_t socket, const std::atomic<bool>& ending)
      : socket_(socket), ending_(ending) {}
  ~BoundedStream() override {
    shutdown(socket_, SHUT_RDWR);
    close(socket_);
  }

  bool is_readable() const override { return Await(POLLIN); }
  bool is_writable() const override { return Await(POLLOUT); }

  ssize_t read(char* bytes, size_t size) override {
    const size_t room = std::min(size, bytes_left_);
    if (room == 0) return -1;
    ssize_t done = -1;
    do {
      done = recv(socket_, bytes, room, MSG_DONTWAIT);
    } while (done < 0 && Again(POLLIN));
    if (done > 0) bytes_left_ -= static_cast<size_t>(done);
    return done;
  }

  ssize_t write(const char* bytes, size_t size) override {
    if (!std::exchange(departing_, true)) limit_ = Clock::now() + kDepartureLimit;
    for (size_t sent = 0; sent < size;) {
      const ssize_t done = send(socket_, bytes + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (done >= 0) {
        sent += static_cast<size_t>(done);
      } else if (!Again(POLLOUT)) {
        return -1;
      }
    }
    return static_cast<ssize_t>(size);
  }

  // No handler asks for addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  // After a call that failed: is it worth another try?
  bool Again(short events) const {
    return errno == EINTR || ((errno == EAGAIN || errno == EWOULDBLOCK) && Await(events));
  }

  bool Await(short events) const {
    while (!ending_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit_ - Clock::now());
      if (left.count() <= 0) return false;
      pollfd ready{.fd = socket_, .events = events, .revents = 0};
      const int found = poll(&ready, 1, static_cast<int>(std::min(left, kEndingPoll).count()));
      if (found > 0) return true;
      if (found < 0 && errno != EINTR) return false;
    }
    return false;
  }

  const socket_t socket_;
  const std::atomic<bool>& ending_;
  size_t bytes_left_ = kRequestBytesMax;
  bool departing_ = false;
  Clock::time_point limit_ = Clock::now() + kArrivalLimit;
};

class BoundedServer : public httplib::Server {
 public:
  std::atomic<bool> ending = false;  // true: connections stop waiting

  // The library lets five wait; the kernel would try the sixth again after a second.
  void QueueMoreConnections() { ::listen(svr_sock_, SOMAXCONN); }

 private:
  bool process_and_close_socket(socket_t socket) override {
    BoundedStream stream(socket, ending);
    bool closed = false;
    // One request a connection: a scraper that kept its connection would hold a thread.
    return process_request(stream, /*close_connection=*/true, closed, nullptr);
  }
};

// The resolver takes an IPv6 address without the brackets that it has before a port.
std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

struct HttpServer::Contents {
  BoundedServer server;
  std::thread thread;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              const Handlers& handlers) {
  auto contents = std::make_unique<Contents>();
  BoundedServer& server = contents->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kPayloadBytesMax);
  // The library would set SO_REUSEPORT as well, which shares the port of another daemon.
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
  const std::string bare_host = WithoutBrackets(host);
  const bool bound = port == 0 ? (contents->port = server.bind_to_any_port(bare_host)) > 0
                               : server.bind_to_port(bare_host, port);
  if (!bound) {
    return absl::UnavailableError(absl::StrCat("cannot listen on http address ", host, ":", port,
                                               ": the port is taken or the address is not ours"));
  }
  server.QueueMoreConnections();
  contents->thread = std::thread([&server] { server.listen_after_bind(); });
  // Before the loop runs stop() does nothing, and the destructor would wait for ever.
  while (!server.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(contents)));
}

HttpServer::HttpServer(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}

HttpServer::~HttpServer() {
  contents_->server.ending = true;
  contents_->server.stop();
  contents_->thread.join();
}

int HttpServer::port() const { return contents_->port; }

}  // namespace hyperserve
