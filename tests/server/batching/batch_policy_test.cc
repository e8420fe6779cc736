#include "server/batching/batch_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperserve {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

const Clock::TimePoint kNow{std::chrono::seconds(100)};
const BatcherOptions kOptions{.queue_delay_max = microseconds(2000)};

TEST(DecideBatch, NothingWaiting) {
  EXPECT_EQ(DecideBatch({}, kNow, Intake::kOpen, kOptions), BatchDecision{});
}

TEST(DecideBatch, WaitsForCompanyUntilTheOldestIsOverdue) {
  const std::vector<QueueSnapshot> queues = {
      {.oldest = kNow - microseconds(500)},
      {.oldest = kNow - microseconds(1500)},
  };
  const BatchDecision decision = DecideBatch(queues, kNow, Intake::kOpen, kOptions);
  EXPECT_FALSE(decision.serve);
  EXPECT_EQ(decision.look_again, kNow + microseconds(500));
}

TEST(DecideBatch, FullGoesAtOnce) {
  const std::vector<QueueSnapshot> queues = {{.oldest = kNow}, {.full = true, .oldest = kNow}};
  EXPECT_EQ(DecideBatch(queues, kNow, Intake::kOpen, kOptions), BatchDecision{.serve = 1});
}

TEST(DecideBatch, OverdueGoesExactlyWhenItsDelayHasPassed) {
  const std::vector<QueueSnapshot> queues = {{.oldest = kNow}};
  const Clock::TimePoint due = kNow + microseconds(2000);
  EXPECT_FALSE(
      DecideBatch(queues, due - std::chrono::nanoseconds(1), Intake::kOpen, kOptions).serve);
  EXPECT_EQ(DecideBatch(queues, due, Intake::kOpen, kOptions).serve, 0u);
}

TEST(DecideBatch, DrainingWaitsForNobody) {
  const std::vector<QueueSnapshot> queues = {{.oldest = kNow}};
  EXPECT_EQ(DecideBatch(queues, kNow, Intake::kDraining, kOptions).serve, 0u);
}

TEST(DecideBatch, LeastRecentlyServedFirstThenOldest) {
  const Clock::TimePoint overdue = kNow - microseconds(5000);
  const std::vector<QueueSnapshot> queues = {
      {.full = true, .oldest = overdue - microseconds(9000), .last_turn = 7},
      {.oldest = overdue, .last_turn = 3},
      {.oldest = overdue - microseconds(1), .last_turn = 3},
  };
  EXPECT_EQ(DecideBatch(queues, kNow, Intake::kOpen, kOptions).serve, 2u);
}

TEST(DecideBatch, ABatchThatGaveWayIsReadyAndTakesItsTurn) {
  std::vector<QueueSnapshot> queues = {
      {.full = true, .oldest = kNow, .last_turn = 4},
      {.oldest = Clock::TimePoint::min(), .under_way = true, .last_turn = 5},
  };
  EXPECT_EQ(DecideBatch(queues, kNow, Intake::kOpen, kOptions).serve, 0u);
  queues[0].last_turn = 6;
  EXPECT_EQ(DecideBatch(queues, kNow, Intake::kOpen, kOptions).serve, 1u);
}

TEST(DecideAdmission, EachLimitIsInclusiveAndNamed) {
  const BatcherOptions options{
      .queue_rows_max = 10, .queue_bytes_max = 100, .pending_macs_max = 1000, .live_queues_max = 2};
  const Batcher::Depth depth{.requests = 1, .rows = 6, .queues = 2, .bytes = 60, .macs = 600};
  EXPECT_TRUE(DecideAdmission(depth, {.rows = 4, .bytes = 40, .macs = 400}, options).ok());

  const absl::Status rows = DecideAdmission(depth, {.rows = 5, .bytes = 1}, options);
  EXPECT_EQ(rows.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(rows.message()), HasSubstr("queue_rows_max = 10"));

  const absl::Status bytes = DecideAdmission(depth, {.rows = 1, .bytes = 41}, options);
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(bytes.message()), HasSubstr("queue_bytes_max = 100"));

  const absl::Status macs = DecideAdmission(depth, {.rows = 1, .macs = 401}, options);
  EXPECT_EQ(macs.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(macs.message()),
              HasSubstr("about 6e+02 MACs, 4e+02 more would pass pending_macs_max = 1e+03"));

  const absl::Status queues =
      DecideAdmission(depth, {.rows = 1, .bytes = 1, .opens_queue = true}, options);
  EXPECT_EQ(queues.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(queues.message()), HasSubstr("live_queues_max = 2"));
}

}  // namespace
}  // namespace hyperserve
