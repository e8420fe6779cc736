#include "server/batching/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/batching/batcher_options.h"
#include "server/batching/work.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const BatcherOptions kOptions = TestOptions{.queue_rows_max = 16,
                                            .queue_bytes_max = 160,
                                            .pending_macs_max = 1600,
                                            .live_queues_max = 4,
                                            .solvers = 2}
                                    .options();

std::string Refusal(const Pending& pending, const Arrival& arrival) {
  const absl::Status status = DecideAdmission(pending, arrival, kOptions).status;
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  return std::string(status.message());
}

TEST(DecideAdmission, EachLimitIsInclusiveAndNamed) {
  const Pending pending{.all = {.rows = 6, .queues = 4, .bytes = 60, .macs = 600}};
  EXPECT_EQ(Refusal(pending, {.rows = 10, .bytes = 100, .macs = 1000}), "");
  EXPECT_THAT(Refusal(pending, {.rows = 11}), HasSubstr("queue_rows_max = 16"));
  EXPECT_THAT(Refusal(pending, {.bytes = 101}), HasSubstr("queue_bytes_max = 160"));
  EXPECT_THAT(Refusal(pending, {.macs = 1001}),
              HasSubstr("600 MACs, 1001 more would pass pending_macs_max = 1600"));
  EXPECT_THAT(Refusal(pending, {.opens_queue = true}), HasSubstr("live_queues_max = 4"));
}

TEST(DecideAdmission, OfSeveralClientsEachHasItsShareOfEveryLimit) {
  Pending pending{
      .own = {.rows = 6, .queues = 2, .bytes = 60, .macs = 600}, .own_live = 1, .sharers = 2};
  EXPECT_EQ(Refusal(pending, {.rows = 2, .bytes = 20, .macs = 200}), "");
  EXPECT_THAT(Refusal(pending, {.rows = 3}),
              HasSubstr("8 of queue_rows_max = 16, which 2 clients"));
  EXPECT_THAT(Refusal(pending, {.bytes = 21}), HasSubstr("80 of queue_bytes_max"));
  EXPECT_THAT(Refusal(pending, {.macs = 201}), HasSubstr("800 of pending_macs_max"));
  EXPECT_THAT(Refusal(pending, {.opens_queue = true}), HasSubstr("2 of live_queues_max"));
  pending.sharers = 100;  // a share is never nothing
  pending.own = {};
  EXPECT_EQ(Refusal(pending, {.rows = 1, .opens_queue = true}), "");
}

TEST(DecideAdmission, OneClientAloneLeavesRoomForAnother) {
  const Pending pending{.own = {.rows = 12}, .own_live = 1};
  EXPECT_EQ(Refusal(pending, {.rows = 2}), "");
  EXPECT_THAT(Refusal(pending, {.rows = 3}), HasSubstr("14 of queue_rows_max"));
}

TEST(DecideAdmission, AClientWithNothingPendingNeedsNoShare) {
  EXPECT_EQ(Refusal({.sharers = 9}, {.rows = 16, .bytes = 160, .macs = 1600}), "");
}

// A MAC takes 1 ms, of two solvers: 1,000 MACs before a request are half a second.
TEST(DecideAdmission, WhatCannotMeetItsDeadlineIsRefusedWithAFittingPushback) {
  struct Case {
    double cost_before, cost, seconds_left;
    int64_t retry_after;  // milliseconds; 0: it is let in
  };
  for (const Case& one : {Case{1000, 0, 1.0, 0}, Case{1000, 0, 0.96, 20}, Case{1000, 125, 1.125, 0},
                          Case{1000, 125, 1.085, 20}, Case{1000, 900, 0.5, 500},
                          Case{1e9, 0, 1, 30000}, Case{0, 1e9, 1, 0}}) {
    const Admission admission =
        DecideAdmission({.cost_before = one.cost_before, .pace = 1e-3},
                        {.rows = 1, .cost = one.cost, .seconds_left = one.seconds_left}, kOptions);
    EXPECT_EQ(admission.status.ok(), one.retry_after == 0) << one.cost_before << " " << one.cost;
    EXPECT_NEAR(static_cast<double>(admission.retry_after.count()),
                static_cast<double>(one.retry_after), 1);
  }
}

TEST(DecideAdmission, NobodyIsRefusedForTimeBeforeItIsMeasuredOrBesideAnIdleSolver) {
  const Arrival hurried{.rows = 1, .cost = 5, .seconds_left = 1e-3};
  EXPECT_TRUE(DecideAdmission({.cost_before = 1e9}, hurried, kOptions).status.ok());
  EXPECT_TRUE(
      DecideAdmission({.cost_before = 1e9, .pace = 1, .idle_solver = true}, hurried, kOptions)
          .status.ok());
}

TEST(DecideAdmission, AFullQueueSaysWhenHalfOfItIsGone) {
  const Admission full = DecideAdmission({.all = {.rows = 16}, .cost_before = 1000, .pace = 1e-3},
                                         {.rows = 1}, kOptions);
  EXPECT_EQ(full.retry_after, milliseconds(250));
}

}  // namespace
}  // namespace hyperserve
