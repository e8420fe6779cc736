// A bound on the headers that a connection may send in one block. gRPC 1.51 keeps a header that has
// not ended, however long it gets, and reads it again from its beginning with each frame
// (CVE-2023-33953): 16 MiB took 43 s of a thread. It offers no limit, so the program stands between
// its library and the socket: recvmsg, by which that library reads, is this file's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hyperserve {

// gRPC refuses metadata of more than 8 KiB; HPACK may spell them longer than they are.
inline constexpr int64_t kHeaderBlockBytesMax = 64 << 10;

// Follows the frames of HTTP/2 in what one connection received. Pure; used by one thread at a time.
class HeaderFollower {
 public:
  // The next bytes, in any pieces. False, and for all that follows: a HEADERS frame and its
  // CONTINUATION frames together are longer than kHeaderBlockBytesMax.
  bool Take(std::string_view bytes);

 private:
  static constexpr size_t kFrameHead = 9;

  bool TakeFrameHead();

  int64_t skip_ = 24;  // bytes until the next frame: the preface, then payloads
  std::array<unsigned char, kFrameHead> head_{};
  size_t head_bytes_ = 0;
  int64_t block_bytes_ = 0;  // of the block that has not ended
  bool good_ = true;
};

// Follows the connection at `fd` from its first byte on. Where a block is too long, `on_flood` is
// called on the thread that reads, and the reader sees the end of the connection. Call it before
// anybody reads from `fd`; it ends with the connection. Thread-safe.
void GuardHeaders(int fd, std::function<void()> on_flood);

}  // namespace hyperserve
