#include "server/net/listening_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

Descriptor Spare() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// The resolver takes an IPv6 address without the brackets that it has before a port.
std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr* address, int port) {
  const uint16_t wire = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = wire;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = wire;
  }
}

// An empty descriptor: the address cannot be had.
Descriptor ListenOn(const addrinfo& found, int port) {
  Descriptor socket(
      ::socket(found.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return socket;
  const int yes = 1, no = 0;
  // A port is taken over from connections that linger, but never shared (SO_REUSEPORT).
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // [::] takes IPv4 too, as gRPC's own listener does.
  if (found.ai_family == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  }
  sockaddr_storage address{};
  memcpy(&address, found.ai_addr, found.ai_addrlen);
  SetPort(reinterpret_cast<sockaddr*>(&address), port);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), found.ai_addrlen) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    socket.Close();
  }
  return socket;
}

}  // namespace

ListeningSocket::ListeningSocket(Descriptor socket, int port)
    : socket_(std::move(socket)), port_(port), spare_(Spare()) {}

absl::StatusOr<std::vector<ListeningSocket>> ListeningSocket::Open(const std::string& host,
                                                                   int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  std::vector<ListeningSocket> sockets;
  bool taken = false;
  if (getaddrinfo(WithoutBrackets(host).c_str(), nullptr, &hints, &found) == 0) {
    for (const addrinfo* one = found; one != nullptr && !taken; one = one->ai_next) {
      Descriptor socket = ListenOn(*one, port);
      taken = !socket && errno == EADDRINUSE;
      if (!socket) continue;
      port = PortOf(socket.get());
      sockets.push_back(ListeningSocket(std::move(socket), port));
    }
    freeaddrinfo(found);
  }
  if (taken || sockets.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port,
                                               ": the port is taken or the address is not ours"));
  }
  return sockets;
}

Descriptor ListeningSocket::Accept() {
  if (!spare_) spare_ = Spare();
  Descriptor connection(accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection && (errno == EMFILE || errno == ENFILE) && spare_) {
    spare_.Close();
    Descriptor(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC)).Close();
    spare_ = Spare();
  }
  if (connection) {
    const int yes = 1;
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  return connection;
}

Wake::Wake() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Wake::Call() const { eventfd_write(event_.get(), 1); }

}  // namespace hyperserve
