#include "tests/e2e/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hyperserve {
namespace {

// Types and flags of frames (RFC 9113, section 6).
constexpr uint8_t kData = 0, kHeaders = 1, kResetStream = 3, kSettings = 4, kGoAway = 7,
                  kWindowUpdate = 8, kContinuation = 9;
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
constexpr uint16_t kInitialWindowSize = 4;
constexpr size_t kFrameBytes = 16384, kFrameHead = 9;
constexpr char kSample[] = "/hyperserve.v1.Hyperserve/Sample";
constexpr int kAtOnce = 10'000;  // ms; small frames are always taken

std::string BigEndian(uint32_t number, int bytes) {
  std::string text;
  for (int i = bytes; i-- > 0;) text += static_cast<char>(number >> 8 * i & 0xFF);
  return text;
}

uint32_t NumberIn(std::string_view text) {
  uint32_t number = 0;
  for (const char c : text) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

// A header that is not put into the table, without Huffman's code. Precondition: both parts are
// shorter than 127 bytes.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

// The headers of a call, with `odd` in the place of the one of its name, or as one more.
std::string CallHeaders(const std::string& path, const std::pair<std::string, std::string>& odd) {
  std::map<std::string, std::string> headers = {{":method", "POST"},
                                                {":scheme", "http"},
                                                {":path", path},
                                                {":authority", "test"},
                                                {"content-type", "application/grpc"},
                                                {"te", "trailers"}};
  if (!odd.first.empty()) headers[odd.first] = odd.second;
  std::string block;
  for (const auto& [name, value] : headers) block += Header(name, value);
  return block;
}

std::string ManyHeaders(size_t bytes) {
  std::string many;
  for (int i = 0; many.size() + 130 < bytes; ++i) {
    many += Header("x-" + std::to_string(i), std::string(100, 'v'));
  }
  return many;
}

}  // namespace

RawHttp2::RawHttp2(const std::string& address, uint32_t window)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  // Another client than those of 127.0.0.1: clients are told apart by their addresses.
  sockaddr_in from{.sin_family = AF_INET};
  inet_pton(AF_INET, "127.0.0.2", &from.sin_addr);
  (void)bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from);
  const size_t colon = address.rfind(':');
  sockaddr_in to{.sin_family = AF_INET};
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  (void)connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", kAtOnce);
  SendFrame(kSettings, 0, 0, BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4), kAtOnce);
}

RawHttp2::~RawHttp2() { close(fd_); }

void RawHttp2::ResetCall() {
  constexpr uint32_t kCancel = 8;
  SendFrame(kResetStream, 0, stream_, BigEndian(kCancel, 4), kAtOnce);
}

std::string RawHttp2::MessageHead(uint32_t bytes_in_all) {
  return std::string(1, '\0') + BigEndian(bytes_in_all, 4);
}

void RawHttp2::BeginCall(const std::string& path) {
  stream_ = stream_ == 0 ? 1 : stream_ + 2;
  windows_[stream_] = initial_window_;
  SendFrame(kHeaders, kEndHeaders, stream_, CallHeaders(path, {}), kAtOnce);
}

size_t RawHttp2::SendBody(std::string_view bytes, bool last, int patience_ms) {
  size_t sent = 0;
  while (!closed_ && sent < bytes.size()) {
    while (Receive(0)) {
    }
    const int64_t open = std::min(connection_window_, windows_[stream_]);
    const size_t size = std::min(
        {bytes.size() - sent, kFrameBytes, static_cast<size_t>(std::max<int64_t>(open, 0))});
    if (size == 0) {
      if (!Receive(patience_ms)) break;
      continue;
    }
    const bool ends = last && sent + size == bytes.size();
    if (!SendFrame(kData, ends ? kEndStream : 0, stream_, bytes.substr(sent, size), patience_ms)) {
      break;
    }
    sent += size;
    connection_window_ -= static_cast<int64_t>(size);
    windows_[stream_] -= static_cast<int64_t>(size);
  }
  return sent;
}

size_t RawHttp2::FloodHeaders(Flood kind, size_t bytes, int patience_ms) {
  stream_ = stream_ == 0 ? 1 : stream_ + 2;
  // A header whose value of a gigabyte has begun, or whose length goes on in bytes of no value.
  const std::string length = kind == Flood::kOneLongHeader ? "\x7f\x81\xff\xff\xff\x03" : "\x7f";
  const std::string begun = std::string(1, '\0') + "\x06x-long" + length;
  SendFrame(kHeaders, 0, stream_,
            CallHeaders(kSample, {}) + (kind == Flood::kManyHeaders ? "" : begun), kAtOnce);
  const std::string more =
      kind == Flood::kManyHeaders
          ? ManyHeaders(kFrameBytes)
          : std::string(kFrameBytes, kind == Flood::kOneLongHeader ? 'v' : '\x80');
  size_t sent = 0;
  while (!closed_ && sent < bytes) {
    while (Receive(0)) {
    }
    if (!SendFrame(kContinuation, 0, stream_, more, patience_ms)) break;
    sent += more.size();
  }
  return sent;
}

void RawHttp2::BeginOddCall(const std::string& name, const std::string& value) {
  stream_ = stream_ == 0 ? 1 : stream_ + 2;
  SendFrame(kHeaders, kEndHeaders, stream_,
            CallHeaders(kSample, {name, value}) + ManyHeaders(12'000), kAtOnce);
}

bool RawHttp2::Send(std::string_view bytes, int patience_ms) {
  while (!bytes.empty() && !closed_) {
    const ssize_t taken = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (taken > 0) {
      bytes.remove_prefix(static_cast<size_t>(taken));
      continue;
    }
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, patience_ms) <= 0) return false;
    if ((ready.revents & (POLLERR | POLLHUP)) != 0) closed_ = true;
  }
  return !closed_;
}

bool RawHttp2::SendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload,
                         int patience_ms) {
  std::string frame = BigEndian(static_cast<uint32_t>(payload.size()), 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += BigEndian(stream, 4);
  return Send(frame.append(payload), patience_ms);
}

bool RawHttp2::Receive(int patience_ms) {
  pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
  if (closed_ || poll(&ready, 1, patience_ms) <= 0) return false;
  std::array<char, 65536> buffer;
  const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
  if (got <= 0) {
    closed_ = true;
    return false;
  }
  received_.append(buffer.data(), static_cast<size_t>(got));
  while (received_.size() >= kFrameHead) {
    const std::string_view view = received_;
    const size_t size = NumberIn(view.substr(0, 3));
    if (view.size() < kFrameHead + size) break;
    Take(static_cast<uint8_t>(view[3]), static_cast<uint8_t>(view[4]), NumberIn(view.substr(5, 4)),
         view.substr(kFrameHead, size));
    received_.erase(0, kFrameHead + size);
  }
  return true;
}

void RawHttp2::Take(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  if (type == kGoAway) closed_ = true;
  if (type == kWindowUpdate) {
    (stream == 0 ? connection_window_ : windows_[stream]) += NumberIn(payload);
  }
  if (type != kSettings || (flags & kAck) != 0) return;
  for (; payload.size() >= 6; payload.remove_prefix(6)) {
    if (NumberIn(payload.substr(0, 2)) != kInitialWindowSize) continue;
    const int64_t window = NumberIn(payload.substr(2, 4));
    for (auto& [id, open] : windows_) open += window - initial_window_;
    initial_window_ = window;
  }
  SendFrame(kSettings, kAck, 0, "", kAtOnce);
}

}  // namespace hyperserve
