#include "server/calls/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/row_status.h"
#include "server/batching/work.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

WorkResult TwoRows() {
  WorkResult result{.engine = "e", .engine_reason = "there is no other", .device = "cpu"};
  result.rows.status = {RowStatus::kConverged, RowStatus::kConverged};
  result.rows.nfe = {2, 2};
  result.rows.correction_evaluations = {1, 1};
  result.rows.macs = {100, 101};
  result.rows.bucket = 32;
  return result;
}

TEST(SolveInfo, SaysWhatWasDone) {
  SolveInfo info{.request_id = "id-1"};
  SetTimes({.queue_seconds = 0.25, .solve_seconds = 0.5}, info);
  SetResult(TwoRows(), info);
  EXPECT_EQ(info.request_id, "id-1");
  EXPECT_THAT(info.nfe, ElementsAre(2));          // equal: one value
  EXPECT_THAT(info.macs, ElementsAre(100, 101));  // not equal: all
  EXPECT_THAT(info.row_status, ElementsAre(RowStatus::kConverged));
  EXPECT_EQ(info.queue_seconds, 0.25);
  EXPECT_EQ(info.solve_seconds, 0.5);
  EXPECT_EQ(info.engine, "e");
  EXPECT_EQ(info.engine_reason, "there is no other");
  EXPECT_EQ(info.bucket, 32);
}

TEST(SolveInfo, WhatNeverBeganTookNoTime) {
  SolveInfo info;
  SetTimes({}, info);
  EXPECT_EQ(info.queue_seconds, 0);
  EXPECT_EQ(info.solve_seconds, 0);
}

TEST(AddChunk, KeepsFiguresWhileAllChunksAgree) {
  SolveInfo chunk;
  SetTimes({.queue_seconds = 1, .solve_seconds = 2}, chunk);
  SetResult(TwoRows(), chunk);
  SolveInfo stream{.request_id = "id-1"};
  AddChunk(chunk, stream);
  EXPECT_THAT(stream.nfe, ElementsAre(2));
  EXPECT_THAT(stream.macs, IsEmpty());  // its rows differ
  chunk.macs = {100};
  chunk.nfe = {3};
  chunk.bucket = 8;
  AddChunk(chunk, stream);
  EXPECT_THAT(stream.nfe, IsEmpty());
  EXPECT_THAT(stream.macs, IsEmpty());
  EXPECT_THAT(stream.correction_evaluations, ElementsAre(1));
  EXPECT_THAT(stream.row_status, ElementsAre(RowStatus::kConverged));
  EXPECT_EQ(stream.queue_seconds, 2);
  EXPECT_EQ(stream.solve_seconds, 4);
  EXPECT_EQ(stream.bucket, 32);
  EXPECT_EQ(stream.engine_reason, "there is no other");
  EXPECT_EQ(stream.request_id, "id-1");
}

}  // namespace
}  // namespace hyperserve
