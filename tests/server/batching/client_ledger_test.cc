#include "server/batching/client_ledger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/batching/work.h"
#include "server/clock/clock.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientLedgerTest : public testing::Test {
 protected:
  std::shared_ptr<ClientAccount> Enter(const std::string& peer, const std::string& name = "") {
    return ledger_.Enter({.peer = peer, .name = name}, now_);
  }
  void Begin(ClientAccount& client, double cost, double size = 1) {
    ledger_.Begin(client, work_, size, cost);
  }

  ClientLedger ledger_;
  const Work work_;
  Clock::TimePoint now_{seconds(100)};
};

TEST_F(ClientLedgerTest, PeersDivideAndNamesDivideTheirPeersShare) {
  const auto a = Enter("a");
  EXPECT_EQ(ledger_.Sharers(*a), 1);
  const auto b = Enter("b", "one");
  Enter("b", "two");
  Enter("b", "three");
  EXPECT_EQ(ledger_.Sharers(*a), 2);
  EXPECT_EQ(ledger_.Sharers(*b), 6);
}

TEST_F(ClientLedgerTest, ForgetsWhoHasNothingAndDidNotAskForASecond) {
  const auto a = Enter("a"), b = Enter("b");
  Begin(*b, 1);
  now_ += milliseconds(1100);
  EXPECT_EQ(ledger_.Sharers(*Enter("c")), 2);
  ledger_.End(*b, work_, 1, 1);
  now_ += milliseconds(1100);
  EXPECT_EQ(ledger_.Sharers(*Enter("c")), 1);
}

TEST_F(ClientLedgerTest, TooManyPeersOrNamesShareAnAccount) {
  for (int i = 0; i < 1000; ++i) Enter("peer" + std::to_string(i));
  EXPECT_EQ(Enter("more"), Enter("and more"));
  EXPECT_LE(ledger_.Sharers(*Enter("more")), 257);
  for (int i = 0; i < 1000; ++i) Enter("peer1", "name" + std::to_string(i));
  EXPECT_EQ(Enter("peer1", "x"), Enter("peer1", "y"));
  EXPECT_NE(Enter("peer2", "x"), Enter("peer2", "y"));
}

TEST_F(ClientLedgerTest, LeadCountsTurnsBeyondTheLeastServedThatHasWork) {
  const auto a = Enter("a"), b = Enter("b"), idle = Enter("idle");
  Begin(*a, 1);
  Begin(*b, 1);
  ledger_.Charge(*a, 0.010);
  ledger_.Charge(*b, 0.001);
  ledger_.Rank(milliseconds(2));
  EXPECT_EQ(a->lead, 4);
  EXPECT_EQ(b->lead, 0);
}

TEST_F(ClientLedgerTest, NamesPayForTheirPeer) {
  const auto a = Enter("a"), one = Enter("b", "one"), two = Enter("b", "two");
  for (const auto& client : {a, one, two}) Begin(*client, 1);
  for (const auto& client : {a, one, two}) ledger_.Charge(*client, 1);
  EXPECT_EQ(one->served, 2 * a->served);
}

TEST_F(ClientLedgerTest, WhoComesBackClaimsNoTimeThatItDidNotAskFor) {
  const auto a = Enter("a");
  Begin(*a, 1);
  ledger_.Charge(*a, 50);
  EXPECT_EQ(Enter("b")->served, 50);
}

TEST_F(ClientLedgerTest, ARequestWaitsForItsOwnAndForNoMoreOfEachOther) {
  const auto a = Enter("a"), b = Enter("b"), c = Enter("c");
  Begin(*a, 10, 100);
  Begin(*a, 7, 1e6);  // longer than what follows: it does not wait for this
  Begin(*b, 500, 100);
  Begin(*c, 3, 100);
  EXPECT_EQ(ledger_.CostBefore(*a, 100, 2), 10 + 12 + 3);
  EXPECT_EQ(ledger_.CostBefore(*a, 1e7, 2), 17 + 19 + 3);
  EXPECT_EQ(ledger_.CostBefore(*c, 100, 1), 3 + 4 + 4);
  EXPECT_EQ(ledger_.CostBefore(*Enter("d"), 1, 5), 0);
  ledger_.End(*b, work_, 100, 500);
  EXPECT_EQ(ledger_.CostBefore(*c, 100, 1), 3 + 4);
}

}  // namespace
}  // namespace hyperserve
