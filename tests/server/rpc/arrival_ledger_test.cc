#include "server/rpc/ledgers/arrival_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "server/clock/clock.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

class ArrivalLedgerTest : public testing::Test {
 protected:
  // A request begins to arrive at this time.
  int64_t Join(int number, milliseconds at) {
    return ledger_.Join(Clock::TimePoint(at), [this, number] { given_up_.push_back(number); });
  }
  ArrivalLedger ledger_;
  std::vector<int> given_up_;
};

TEST_F(ArrivalLedgerTest, TheOldestOfTooManySlowOnesAreGivenUp) {
  ledger_.Bound(400, 64);  // three fill half of it
  EXPECT_EQ(ledger_.slow_max(), 3);
  for (int i = 0; i < 6; ++i) Join(i, milliseconds(i));
  EXPECT_THAT(given_up_, ElementsAre()) << "none is slow yet";
  Join(6, milliseconds(1000));
  EXPECT_THAT(given_up_, ElementsAre(0, 1, 2));
  Join(7, milliseconds(2000));
  EXPECT_THAT(given_up_, ElementsAre(0, 1, 2, 3));
  Join(8, milliseconds(2001));
  EXPECT_EQ(given_up_.size(), 4U) << "once each";
}

TEST_F(ArrivalLedgerTest, WhatArrivedOrIsFastCountsNot) {
  ledger_.Bound(1, 64);
  EXPECT_EQ(ledger_.slow_max(), 2);
  std::vector<int64_t> tickets;
  for (int i = 0; i < 100; ++i) tickets.push_back(Join(i, milliseconds(0)));
  for (const int64_t ticket : tickets) ledger_.Leave(ticket);
  ledger_.Leave(tickets[0]);
  for (int i = 0; i < 100; ++i) Join(i, milliseconds(5000 + i));
  EXPECT_THAT(given_up_, ElementsAre());
}

TEST_F(ArrivalLedgerTest, WithoutABoundNothingIsGivenUp) {
  for (int i = 0; i < 10; ++i) Join(i, milliseconds(1000 * i));
  EXPECT_THAT(given_up_, ElementsAre());
}

}  // namespace
}  // namespace hyperserve
