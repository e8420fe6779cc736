#include "server/net/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "server/net/descriptors.h"
#include "server/net/listening_socket.h"

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

// For a whole request to arrive, and for its answer to leave. Limits for each read would let a
// client that sends byte by byte stay for ever.
constexpr std::chrono::seconds kArrivalLimit{2}, kDepartureLimit{2};
constexpr int kAcceptsOfTurn = 64;
constexpr size_t kLingerBytesMax = 16 << 10;

// One connection: its request arrives, its answer leaves, and what still comes is read and dropped
// until the client closes. A close with unread bytes would destroy the answer on its way.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  short events() const { return phase_ == Phase::kDeparting ? POLLOUT : POLLIN; }
  Clock::time_point limit() const { return limit_; }
  bool arriving() const { return phase_ == Phase::kArriving; }

  // Reads and writes what is possible without waiting. False: the connection is done.
  bool Advance(const HttpHandlers& handlers) {
    if (phase_ == Phase::kArriving && !Arrive(handlers)) return false;
    if (phase_ == Phase::kDeparting && !Depart()) return false;
    return phase_ != Phase::kLingering || Linger();
  }

  // The limit has passed. False: the connection is done.
  bool GiveUp() {
    if (phase_ != Phase::kArriving || received_.empty()) return false;
    Reply(RefuseHttp());
    return Depart();
  }

 private:
  enum class Phase { kArriving, kDeparting, kLingering };

  static bool Later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  bool Arrive(const HttpHandlers& handlers) {
    char bytes[4096];
    for (;;) {
      const ssize_t count = recv(fd(), bytes, sizeof bytes, 0);
      if (count < 0 && Later()) return true;
      if (count <= 0) return false;
      received_.append(bytes, static_cast<size_t>(count));
      if (HeadIsComplete(received_)) {
        Reply(AnswerHttp(received_, handlers));
        return true;
      }
      if (received_.size() >= kHttpRequestBytesMax) {
        Reply(RefuseHttp());
        return true;
      }
    }
  }

  void Reply(std::string reply) {
    reply_ = std::move(reply);
    received_ = {};
    phase_ = Phase::kDeparting;
    limit_ = Clock::now() + kDepartureLimit;
  }

  bool Depart() {
    while (sent_ < reply_.size()) {
      const ssize_t count = send(fd(), reply_.data() + sent_, reply_.size() - sent_, MSG_NOSIGNAL);
      if (count < 0) return Later();
      sent_ += static_cast<size_t>(count);
    }
    reply_ = {};
    phase_ = Phase::kLingering;
    shutdown(fd(), SHUT_WR);
    return true;
  }

  bool Linger() {
    char bytes[4096];
    while (lingered_ < kLingerBytesMax) {
      const ssize_t count = recv(fd(), bytes, sizeof bytes, 0);
      if (count < 0 && Later()) return true;
      if (count <= 0) return false;
      lingered_ += static_cast<size_t>(count);
    }
    return false;
  }

  Descriptor socket_;
  Phase phase_ = Phase::kArriving;
  Clock::time_point limit_ = Clock::now() + kArrivalLimit;
  std::string received_, reply_;
  size_t sent_ = 0;
  size_t lingered_ = 0;  // bytes
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(std::vector<ListeningSocket> sockets, int connections_max, HttpHandlers handlers)
      : connections_max_(static_cast<size_t>(connections_max)),
        handlers_(std::move(handlers)),
        sockets_(std::move(sockets)),
        thread_([this] { Run(); }) {}

  ~Loop() {
    ending_ = true;
    wake_.Call();
    thread_.join();
  }

  int port() const { return sockets_.front().port(); }

 private:
  void Run() {
    std::vector<pollfd> polled;
    while (!ending_) {
      polled.clear();
      polled.push_back({.fd = wake_.fd(), .events = POLLIN, .revents = 0});
      for (const ListeningSocket& socket : sockets_) {
        polled.push_back({.fd = socket.fd(), .events = POLLIN, .revents = 0});
      }
      for (const Connection& one : connections_) {
        polled.push_back({.fd = one.fd(), .events = one.events(), .revents = 0});
      }
      if (poll(polled.data(), polled.size(), MillisecondsToLimit()) < 0) continue;
      size_t next = 1 + sockets_.size();  // the connections follow in their order
      for (auto one = connections_.begin(); one != connections_.end();) {
        const bool ready = polled[next++].revents != 0;
        bool stays = !ready || one->Advance(handlers_);
        if (stays && one->limit() <= Clock::now()) stays = one->GiveUp();
        one = stays ? std::next(one) : connections_.erase(one);
      }
      for (ListeningSocket& socket : sockets_) AcceptAll(socket);
    }
  }

  int MillisecondsToLimit() const {
    auto limit = Clock::time_point::max();
    for (const Connection& one : connections_) limit = std::min(limit, one.limit());
    if (limit == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  void AcceptAll(ListeningSocket& socket) {
    for (int i = 0; i < kAcceptsOfTurn; ++i) {  // a flood must not keep the others waiting
      Descriptor accepted = socket.Accept();
      if (!accepted) return;
      connections_.emplace_back(std::move(accepted));
      // A request mostly comes with its connection, so it is never the oldest that is silent.
      if (!connections_.back().Advance(handlers_)) connections_.pop_back();
      if (connections_.size() > connections_max_) DropOne();
    }
  }

  void DropOne() {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& one) { return one.arriving(); });
    connections_.erase(oldest == connections_.end() ? connections_.begin() : oldest);
  }

  const size_t connections_max_;
  const HttpHandlers handlers_;
  const Wake wake_;
  std::atomic<bool> ending_ = false;
  // Below touched only by the thread (and the ports, which never change).
  std::vector<ListeningSocket> sockets_;
  std::list<Connection> connections_;  // oldest first
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              HttpHandlers handlers) {
  auto sockets = ListeningSocket::Open(options.host, options.port);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<HttpServer>(new HttpServer(
      std::make_unique<Loop>(*std::move(sockets), options.connections_max, std::move(handlers))));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return loop_->port(); }

}  // namespace hyperserve
