#include "server/door.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "server/net/header_guard.h"

namespace hyperserve {
namespace {

// The client's address without the port; "": the connection is gone already.
std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr, text,
              sizeof text);
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text,
              sizeof text);
  }
  return text;
}

}  // namespace

Door::Door(std::vector<ListeningSocket> sockets, std::unique_ptr<Acceptor> acceptor,
           ConnectionLimits limits, Refused refused)
    : sockets_(std::move(sockets)),
      acceptor_(std::move(acceptor)),
      refused_(std::move(refused)),
      ledger_(limits, SocketAt),
      thread_([this] { Run(); }) {}

Door::~Door() { Close(); }

void Door::Close() {
  ending_ = true;
  wake_.Call();
  if (thread_.joinable()) thread_.join();
}

int64_t Door::connections() {
  const std::lock_guard lock(mutex_);
  return ledger_.Count();
}

void Door::Run() {
  std::vector<pollfd> polled = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
  for (const ListeningSocket& socket : sockets_) {
    polled.push_back({.fd = socket.fd(), .events = POLLIN, .revents = 0});
  }
  while (!ending_) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    for (ListeningSocket& socket : sockets_) {
      if (Descriptor connection = socket.Accept()) Admit(std::move(connection));
    }
  }
}

void Door::Admit(Descriptor connection) {
  const std::string peer = PeerOf(connection.get());
  if (peer.empty()) return;
  ConnectionLedger::Verdict verdict;
  {
    const std::lock_guard lock(mutex_);
    verdict = ledger_.Take(connection.get(), peer);
  }
  if (verdict != ConnectionLedger::Verdict::kTaken) {
    refused_(verdict == ConnectionLedger::Verdict::kTooMany ? "all" : "peer");
    return;
  }
  Acceptor::NewConnectionParameters handed;
  GuardHeaders(connection.get(), [refused = refused_] { refused("headers"); });
  handed.fd = connection.Release();
  acceptor_->HandleNewConnection(&handed);
}

}  // namespace hyperserve
