#include "server/net/self_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/net/descriptors.h"

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

bool Await(int fd, short events, Clock::time_point limit) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  return poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0;
}

// Was the connection refused? Nobody listens then. A reset is told by others: somebody closed it.
bool Refused(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == ECONNREFUSED;
}

// Who talks to a connected socket?
bool Hears(int fd, const std::string& hello, Clock::time_point limit) {
  if (!Await(fd, POLLOUT, limit) || Refused(fd)) return false;
  if (!hello.empty()) (void)send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
  return Await(fd, POLLIN, limit);  // an end or a reset counts: somebody closed it
}

}  // namespace

bool PortAnswers(const ProbedPort& port, std::chrono::milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const bool bracketed = port.host.starts_with('[') && port.host.ends_with(']');
  const std::string host = bracketed ? port.host.substr(1, port.host.size() - 2) : port.host;
  if (getaddrinfo(host.c_str(), absl::StrCat(port.port).c_str(), &hints, &found) != 0) return true;
  const Clock::time_point end = Clock::now() + limit;
  bool answers = false;
  for (const addrinfo* one = found; one != nullptr && !answers; one = one->ai_next) {
    const Descriptor socket(
        ::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      answers = true;
    } else if (connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0 || errno == EINPROGRESS) {
      answers = Hears(socket.get(), port.hello, end);
    } else {
      answers = errno == EADDRNOTAVAIL || errno == ENOBUFS;
    }
  }
  freeaddrinfo(found);
  return answers;
}

bool PortVerdicts::Note(size_t port, bool answered) {
  failures_[port] = answered ? 0 : failures_[port] + 1;
  return failures_[port] == kFailuresMax;
}

SelfProbe::SelfProbe(std::vector<ProbedPort> ports, Timing timing,
                     std::function<void(const std::string&)> dead)
    : ports_(std::move(ports)),
      timing_(timing),
      dead_(std::move(dead)),
      thread_([this] { Run(); }) {}

SelfProbe::~SelfProbe() {
  ending_ = true;
  wake_.Call();
  thread_.join();
}

void SelfProbe::Run() {
  PortVerdicts verdicts(ports_.size());
  while (!ending_ && !Await(wake_.fd(), POLLIN, Clock::now() + timing_.pause)) {
    for (size_t i = 0; i < ports_.size() && !ending_; ++i) {
      if (verdicts.Note(i, PortAnswers(ports_[i], timing_.answer_max))) dead_(ports_[i].name);
    }
  }
}

}  // namespace hyperserve
