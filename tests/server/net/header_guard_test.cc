#include "server/net/header_guard.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <string>

namespace hyperserve {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr char kData = 0, kHeaders = 1, kSettings = 4, kContinuation = 9;
constexpr char kEndHeaders = 4;

std::string Frame(char type, char flags, size_t size) {
  std::string frame = {static_cast<char>(size >> 16 & 0xFF),
                       static_cast<char>(size >> 8 & 0xFF),
                       static_cast<char>(size & 0xFF),
                       type,
                       flags,
                       0,
                       0,
                       0,
                       1};
  return frame + std::string(size, 'v');
}

// An ordinary connection: settings, calls with headers of 8 KiB and bodies of 64 KiB.
std::string Ordinary(int calls) {
  std::string bytes = kPreface + Frame(kSettings, 0, 6);
  for (int i = 0; i < calls; ++i) {
    bytes += Frame(kHeaders, 0, 4096) + Frame(kContinuation, kEndHeaders, 4096);
    for (int j = 0; j < 4; ++j) bytes += Frame(kData, 0, 16384);
  }
  return bytes;
}

TEST(HeaderFollower, ManyCallsAreNoFlood) {
  const std::string bytes = Ordinary(100);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    HeaderFollower follower;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(follower.Take(std::string_view(bytes).substr(at, piece))) << piece;
    }
  }
}

TEST(HeaderFollower, ABlockWithoutEndIsOne) {
  for (const size_t size : {size_t{16384}, size_t{100}, size_t{0}}) {
    HeaderFollower follower;
    EXPECT_TRUE(follower.Take(Ordinary(2) + Frame(kHeaders, 0, size)));
    int64_t sent = static_cast<int64_t>(size) + 9;
    while (follower.Take(Frame(kContinuation, 0, size))) {
      sent += static_cast<int64_t>(size) + 9;
      ASSERT_LE(sent, kHeaderBlockBytesMax);
    }
    EXPECT_GT(sent + static_cast<int64_t>(size) + 9, kHeaderBlockBytesMax);
    EXPECT_FALSE(follower.Take(Frame(kData, 0, 1))) << "for good";
  }
  HeaderFollower follower;
  EXPECT_FALSE(follower.Take(kPreface + Frame(kHeaders, kEndHeaders, 70'000))) << "in one frame";
}

class Pair {
 public:
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds_.data()), 0); }
  ~Pair() {
    for (const int fd : fds_) close(fd);
  }
  int reader() const { return fds_[0]; }
  void Write(const std::string& bytes) const {
    EXPECT_EQ(write(fds_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // As gRPC reads, into two pieces of memory.
  ssize_t Read() const {
    std::array<char, 1000> first;
    std::array<char, 100'000> second;
    std::array<iovec, 2> pieces = {{{first.data(), first.size()}, {second.data(), second.size()}}};
    msghdr message{.msg_iov = pieces.data(), .msg_iovlen = pieces.size()};
    return recvmsg(fds_[0], &message, 0);
  }

 private:
  std::array<int, 2> fds_{};
};

TEST(GuardHeaders, TheReaderSeesTheEnd) {
  const Pair pair;
  int floods = 0;
  GuardHeaders(pair.reader(), [&floods] { ++floods; });
  const std::string ordinary = Ordinary(1);
  pair.Write(ordinary);
  EXPECT_EQ(pair.Read(), static_cast<ssize_t>(ordinary.size()));
  pair.Write(Frame(kHeaders, 0, 40'000));
  EXPECT_EQ(pair.Read(), 40'009);
  pair.Write(Frame(kContinuation, 0, 40'000));
  EXPECT_EQ(pair.Read(), 0);
  EXPECT_EQ(floods, 1);
  EXPECT_EQ(pair.Read(), 0) << "the connection is shut";
}

TEST(GuardHeaders, OthersAreReadAsEver) {
  const Pair pair;
  pair.Write(kPreface + Frame(kHeaders, 0, 50'000) + Frame(kContinuation, 0, 40'000));
  EXPECT_EQ(pair.Read(), 24 + 50'009 + 40'009);
}

}  // namespace
}  // namespace hyperserve
