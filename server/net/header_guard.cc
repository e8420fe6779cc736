#include "server/net/header_guard.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace hyperserve {
namespace {

// Types and a flag of frames (RFC 9113, section 6).
constexpr unsigned char kHeaders = 1, kContinuation = 9, kEndHeaders = 4;

struct Guarded {
  HeaderFollower follower;
  std::function<void()> on_flood;
};

// The guarded connections of the process, by descriptor. An entry whose connection gRPC closed
// without reading its end stays until the descriptor is used again.
class Guards {
 public:
  void Set(int fd, std::shared_ptr<Guarded> guarded) {
    const std::lock_guard lock(mutex_);
    guarded_[fd] = std::move(guarded);
  }
  std::shared_ptr<Guarded> Find(int fd) {
    const std::lock_guard lock(mutex_);
    const auto found = guarded_.find(fd);
    return found == guarded_.end() ? nullptr : found->second;
  }
  void Erase(int fd) {
    const std::lock_guard lock(mutex_);
    guarded_.erase(fd);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Guarded>> guarded_;  // guarded by mutex_
};

Guards& AllGuards() {
  static Guards* const guards = new Guards;  // gRPC's threads may outlive main
  return *guards;
}

// What was received, read by read into several pieces of memory.
bool TakeAll(const msghdr& message, size_t received, HeaderFollower& follower) {
  for (size_t i = 0; i < message.msg_iovlen && received > 0; ++i) {
    const size_t size = std::min(received, message.msg_iov[i].iov_len);
    if (!follower.Take({static_cast<const char*>(message.msg_iov[i].iov_base), size})) return false;
    received -= size;
  }
  return true;
}

}  // namespace

bool HeaderFollower::Take(std::string_view bytes) {
  while (good_ && !bytes.empty()) {
    if (skip_ > 0) {
      const size_t skipped = std::min(bytes.size(), static_cast<size_t>(skip_));
      skip_ -= static_cast<int64_t>(skipped);
      bytes.remove_prefix(skipped);
      continue;
    }
    head_[head_bytes_++] = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    if (head_bytes_ == kFrameHead) good_ = TakeFrameHead();
  }
  return good_;
}

bool HeaderFollower::TakeFrameHead() {
  head_bytes_ = 0;
  skip_ = head_[0] << 16 | head_[1] << 8 | head_[2];
  if (head_[3] != kHeaders && head_[3] != kContinuation) return true;
  block_bytes_ += static_cast<int64_t>(kFrameHead) + skip_;
  if (block_bytes_ > kHeaderBlockBytesMax) return false;
  if ((head_[4] & kEndHeaders) != 0) block_bytes_ = 0;
  return true;
}

void GuardHeaders(int fd, std::function<void()> on_flood) {
  AllGuards().Set(
      fd, std::make_shared<Guarded>(Guarded{.follower = {}, .on_flood = std::move(on_flood)}));
}

}  // namespace hyperserve

// The function of the C library, for the whole process: this one comes first in the search order.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t received = syscall(SYS_recvmsg, fd, message, flags);
  const int error = errno;
  hyperserve::Guards& guards = hyperserve::AllGuards();
  const auto guarded = guards.Find(fd);
  if (guarded == nullptr) return received;
  const bool over =
      received == 0 || (received < 0 && error != EAGAIN && error != EWOULDBLOCK && error != EINTR);
  if (over) guards.Erase(fd);
  if (received > 0 &&
      !hyperserve::TakeAll(*message, static_cast<size_t>(received), guarded->follower)) {
    guards.Erase(fd);
    guarded->on_flood();
    (void)shutdown(fd, SHUT_RDWR);
    return 0;
  }
  errno = error;
  return received;
}
