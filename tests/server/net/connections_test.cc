// Connections of a port, descriptors, and the daemon's look at its own ports.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>
#include <map>
#include <vector>

#include "server/net/connection_ledger.h"
#include "server/net/descriptors.h"
#include "server/net/http_request.h"
#include "server/net/http_server.h"
#include "server/net/listening_socket.h"
#include "server/net/self_probe.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using Verdict = ConnectionLedger::Verdict;

class LedgerTest : public testing::Test {
 protected:
  std::map<int, uint64_t> sockets_;  // what is open at each descriptor
  ConnectionLedger ledger_{{.all_max = 4, .peer_max = 2}, [this](int fd) {
                             const auto found = sockets_.find(fd);
                             return found == sockets_.end() ? 0 : found->second;
                           }};

  Verdict Open(int fd, const std::string& peer) {
    sockets_[fd] = ++last_;
    return ledger_.Take(fd, peer);
  }

 private:
  uint64_t last_ = 0;
};

TEST_F(LedgerTest, OnePeerCannotTakeAll) {
  EXPECT_EQ(Open(1, "a"), Verdict::kTaken);
  EXPECT_EQ(Open(2, "a"), Verdict::kTaken);
  EXPECT_EQ(Open(3, "a"), Verdict::kTooManyOfPeer);
  EXPECT_EQ(Open(4, "b"), Verdict::kTaken);
  EXPECT_EQ(Open(5, "c"), Verdict::kTaken);
  EXPECT_EQ(Open(6, "d"), Verdict::kTooMany);
  EXPECT_EQ(ledger_.Count(), 4);
}

TEST_F(LedgerTest, WhatWasClosedIsForgotten) {
  EXPECT_EQ(Open(1, "a"), Verdict::kTaken);
  EXPECT_EQ(Open(2, "a"), Verdict::kTaken);
  sockets_.erase(1);
  EXPECT_EQ(Open(3, "a"), Verdict::kTaken);
  sockets_[2] = 99;  // closed, and the descriptor is another socket of the process now
  EXPECT_EQ(Open(4, "a"), Verdict::kTaken);
  EXPECT_EQ(ledger_.Count(), 2);
}

TEST_F(LedgerTest, ADescriptorThatIsGivenAnewIsCountedOnce) {
  EXPECT_EQ(Open(1, "a"), Verdict::kTaken);
  EXPECT_EQ(Open(1, "b"), Verdict::kTaken);
  EXPECT_EQ(ledger_.Count(), 1);
  EXPECT_EQ(Open(2, "a"), Verdict::kTaken);
  EXPECT_EQ(Open(3, "a"), Verdict::kTaken);
}

TEST(ConnectionShares, LeaveRoomForFiles) {
  for (const int64_t descriptors : {64, 256, 1024, 4096, 65536, 1 << 20}) {
    const ConnectionShares shares = SharesOf(descriptors);
    EXPECT_LE(shares.calls + shares.admin + shares.http, descriptors * 3 / 4) << descriptors;
    EXPECT_GE(shares.admin, 4);
  }
  EXPECT_EQ(SharesOf(1024).calls, 512);
  EXPECT_EQ(SharesOf(1 << 20).http, 256);
}

class DescriptorLimit : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0); }
  void TearDown() override { setrlimit(RLIMIT_NOFILE, &before_); }
  void SetSoft(rlim_t soft) const {
    rlimit limit = before_;
    limit.rlim_cur = soft;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  rlimit before_{};
};

TEST_F(DescriptorLimit, TheSoftLimitIsRaisedToTheHardOne) {
  SetSoft(64);
  const int64_t raised = RaiseDescriptorLimit();
  EXPECT_EQ(raised, static_cast<int64_t>(std::min<rlim_t>(before_.rlim_max, kDescriptorsMost)));
}

TEST_F(DescriptorLimit, AServerWithoutDescriptorsStaysOpen) {
  auto server = HttpServer::Start({.host = "127.0.0.1", .connections_max = 1000},
                                  {{"/livez", [] { return HttpReply{.body = "alive\n"}; }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const ProbedPort port{.name = "http",
                        .host = "127.0.0.1",
                        .port = (*server)->port(),
                        .hello = "GET /livez HTTP/1.1\r\n\r\n"};
  EXPECT_TRUE(PortAnswers(port, milliseconds(5000)));
  std::vector<Descriptor> all;
  SetSoft(128);
  for (Descriptor one(socket(AF_INET, SOCK_STREAM, 0)); one;
       one = Descriptor(socket(AF_INET, SOCK_STREAM, 0))) {
    all.push_back(std::move(one));
  }
  all.pop_back();  // one for the client's end, none for the server's: it closes the connection
  EXPECT_TRUE(PortAnswers(port, milliseconds(5000)));
  all.clear();
  EXPECT_TRUE(PortAnswers(port, milliseconds(5000)));
}

TEST(SelfProbe, ARefusedConnectionIsNoAnswer) {
  ProbedPort port{.name = "address", .host = "127.0.0.1", .port = 0, .hello = ""};
  {
    const auto listening = ListeningSocket::Open("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok()) << listening.status();
    port.port = listening->front().port();
  }
  EXPECT_FALSE(PortAnswers(port, milliseconds(5000)));
}

TEST(SelfProbe, AListenerThatAcceptsNoMoreIsDead) {
  const auto deaf = ListeningSocket::Open("127.0.0.1", 0);
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  std::promise<std::string> dead;
  const SelfProbe probe(
      {{.name = "address", .host = "127.0.0.1", .port = deaf->front().port(), .hello = ""}},
      {.pause = milliseconds(1), .answer_max = milliseconds(20)},
      [&](const std::string& name) { dead.set_value(name); });
  EXPECT_EQ(dead.get_future().get(), "address");
}

TEST(SelfProbe, OnlyFailuresInARowCount) {
  PortVerdicts verdicts(2);
  EXPECT_FALSE(verdicts.Note(0, false));
  EXPECT_FALSE(verdicts.Note(0, false));
  EXPECT_FALSE(verdicts.Note(0, true));
  EXPECT_FALSE(verdicts.Note(0, false));
  EXPECT_FALSE(verdicts.Note(1, false));
  EXPECT_FALSE(verdicts.Note(0, false));
  EXPECT_TRUE(verdicts.Note(0, false));
  EXPECT_FALSE(verdicts.Note(0, false));  // told once
}

}  // namespace
}  // namespace hyperserve
