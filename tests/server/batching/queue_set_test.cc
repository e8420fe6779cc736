#include "server/batching/queue_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/client_ledger.h"
#include "server/batching/request.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"
#include "tests/server/batching/batcher_fixture.h"
#include "tests/testing/fake_engine.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Clock::TimePoint kNow{seconds(100)};

class QueueSetTest : public testing::Test {
 protected:
  // Rows that need so many evaluations; `name` is their first row.
  void Add(int64_t rows, int64_t evaluations, uint64_t name, uint64_t turn = 0) {
    AddWork(FakeWork(model_, rows, evaluations, name), turn);
  }
  void AddWork(Work work, uint64_t turn = 0) {
    work.batch_rows_max = std::min(work.batch_rows_max, options_.batch_rows_max);
    const auto request = std::make_shared<PendingRequest>(std::move(work), WorkDone(), kNow);
    request->counted.client = clients_.Enter(request->work().client, kNow);
    queues_.Add(request, turn);
  }
  Queue& queue() { return *queues_.Find(FakeWork(model_, 1).spec); }

  static std::vector<uint64_t> Names(const std::vector<Piece>& pieces) {
    std::vector<uint64_t> names;
    for (const Piece& piece : pieces) names.push_back(piece.segment.first_row);
    return names;
  }

  const std::shared_ptr<const Model> model_ = FakeModel();
  const BatcherOptions options_ = TestOptions{.batch_rows_max = 8}.options();
  ClientLedger clients_;
  QueueSet queues_{options_};
};

TEST_F(QueueSetTest, CountsWhatWaits) {
  Add(3, 1, 1);
  Add(20, 1, 2);  // three pieces
  EXPECT_EQ(queues_.depth().requests, 2);
  EXPECT_EQ(queues_.depth().rows, 23);
  EXPECT_EQ(queues_.depth().queues, 1);
  QueueSet::Taken taken = queues_.TakeForStart(queue(), Pick::kFirstCome, kNow);
  EXPECT_THAT(Names(taken.pieces), ElementsAre(1, 18));  // the last piece fits beside the first
  EXPECT_EQ(queues_.depth().requests, 1);
  EXPECT_EQ(queues_.depth().rows, 16);
  for (Piece& piece : taken.pieces) queues_.PutBack(queue(), std::move(piece));
  EXPECT_EQ(queues_.depth().requests, 2);
  EXPECT_EQ(queues_.depth().rows, 23);
}

TEST_F(QueueSetTest, AQueueIsLiveWhileARunIsUnderWay) {
  Add(1, 1, 1);
  const QueueSet::Taken taken = queues_.TakeForStart(queue(), Pick::kShortest, kNow);
  EXPECT_TRUE(queues_.empty());
  EXPECT_EQ(queues_.depth().queues, 1);
  queues_.RunEnded(queue());
  EXPECT_EQ(queues_.depth().queues, 0);
}

TEST_F(QueueSetTest, StartsWithTheShortestOrTheFirstAndWhatIsLikeIt) {
  Add(1, 50, 1);
  Add(1, 5, 2);
  Add(1, 60, 3);
  Add(1, 4, 4);
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kFirstCome, kNow).pieces),
              ElementsAre(1, 3));
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kShortest, kNow).pieces),
              ElementsAre(4, 2));
}

TEST_F(QueueSetTest, EqualRowsLeaveInTheOrderInWhichTheyCame) {
  for (uint64_t i = 1; i <= 5; ++i) Add(3, 4, i);
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kShortest, kNow).pieces),
              ElementsAre(1, 2));
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kShortest, kNow).pieces),
              ElementsAre(3, 4));
}

TEST_F(QueueSetTest, RoomLeftByALargePieceIsFilledBySmallOnes) {
  Add(7, 4, 1);
  Add(7, 4, 2);
  Add(1, 4, 3);
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kShortest, kNow).pieces),
              ElementsAre(1, 3));
}

TEST_F(QueueSetTest, ARunTakesInWhatIsLikeItsRows) {
  Add(1, 9, 1);
  Add(1, 10, 2);
  Add(1, 40, 3);
  Add(1, 41, 4);
  Add(1, 20, 5);
  const Load load{.rows = 2, .evaluations_least = 20, .evaluations_most = 20};
  EXPECT_THAT(
      Names(queues_.TakeForRun(queue(), Pick::kShortest, Joining::kCompany, load, 2, kNow).pieces),
      ElementsAre(2, 5));
  // 40 is not much longer than 20; with the 20 in it the run takes no 41.
  EXPECT_THAT(
      Names(queues_.TakeForRun(queue(), Pick::kShortest, Joining::kCompany, load, 6, kNow).pieces),
      ElementsAre(3));
}

TEST_F(QueueSetTest, WhatIsToBeTriedAloneStaysAlone) {
  Add(1, 4, 1);
  Add(1, 4, 2);
  QueueSet::Taken taken = queues_.TakeForStart(queue(), Pick::kShortest, kNow);
  for (Piece& piece : taken.pieces) {
    piece.alone = true;
    queues_.PutBack(queue(), std::move(piece));
  }
  Add(1, 4, 3);
  EXPECT_THAT(Names(queues_.TakeForStart(queue(), Pick::kShortest, kNow).pieces), ElementsAre(1));
  const Load load{.rows = 1, .evaluations_least = 4, .evaluations_most = 4};
  EXPECT_THAT(
      Names(queues_.TakeForRun(queue(), Pick::kShortest, Joining::kCompany, load, 6, kNow).pieces),
      ElementsAre(3));
}

TEST_F(QueueSetTest, TheDeadAreNotAmongThem) {
  Work late = FakeWork(model_, 1, 1, 7);
  late.patience.deadline = kNow + milliseconds(5);
  AddWork(late);
  Add(1, 1, 8);
  AddWork(late);
  const Clock::TimePoint then = kNow + milliseconds(5);
  const QueueSet::Taken taken = queues_.TakeForStart(queue(), Pick::kShortest, then);
  EXPECT_THAT(Names(taken.pieces), ElementsAre(8));
  EXPECT_THAT(Names(taken.dead), testing::UnorderedElementsAre(7, 7));

  Work other = late;
  other.spec.tier = Tier::kDouble;
  AddWork(other);
  EXPECT_THAT(queues_.TakeDead(kNow), IsEmpty());
  EXPECT_THAT(Names(queues_.TakeDead(then)), ElementsAre(7));
  EXPECT_EQ(queues_.depth().queues, 1);  // that with a run
}

TEST_F(QueueSetTest, LooksAtEachQueue) {
  Add(1, 50, 1, /*turn=*/3);
  Work hurried = FakeWork(model_, 2, 5, 2);
  hurried.patience.deadline = kNow + milliseconds(100);
  AddWork(hurried, /*turn=*/4);
  Work other = FakeWork(model_, 8);
  other.spec.tier = Tier::kDouble;
  AddWork(other);
  const QueueSet::View view = queues_.Look(/*pace=*/1e-3);
  ASSERT_EQ(view.snapshots.size(), 2u);
  const QueueSnapshot& first = view.snapshots[0];
  EXPECT_FALSE(first.full);
  EXPECT_EQ(first.came, 3u);
  EXPECT_EQ(first.oldest, kNow);
  EXPECT_EQ(first.shortest.load.evaluations_least, 5);
  EXPECT_EQ(first.shortest.load.rows, 2);
  EXPECT_EQ(first.first_come.load.evaluations_least, 50);
  // 5 evaluations of 2 rows take 10 ms; 2 ms are for all else.
  EXPECT_EQ(first.start_by, kNow + milliseconds(88));
  EXPECT_TRUE(view.snapshots[1].full);
}

}  // namespace
}  // namespace hyperserve
