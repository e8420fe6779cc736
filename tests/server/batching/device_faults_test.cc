// A device whose memory is full, and one that answers no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "tests/server/batching/batcher_fixture.h"

namespace hyperserve {
namespace {

// A device with memory for so many rows.
std::function<absl::Status(const std::vector<Segment>&)> RoomFor(int64_t rows) {
  return [rows](const std::vector<Segment>& sharing) {
    int64_t asked = 0;
    for (const Segment& segment : sharing) asked += segment.rows;
    return asked > rows ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
}

TEST_F(BatchLoopTest, ABatchThatTheDeviceHasNoRoomForIsHalved) {
  control_->break_run = RoomFor(3);
  std::vector<std::string> told;
  Start({.on_device_full = [&](std::string_view device, int64_t rows) {
    told.push_back(absl::StrCat(std::string(device), ": ", rows));
  }});
  Answer a = Submit(MakeWork(10, 3, 1)), b = Submit(MakeWork(1, 3, 2));
  StepToEnd();
  ExpectRows(a.get(), 10, 1);
  ExpectRows(b.get(), 1, 2);
  EXPECT_EQ(control_->batches().front().rows, 11);
  EXPECT_EQ(told.front(), "cpu: 11");
  EXPECT_EQ(loop_->depth().rows, 0);
  EXPECT_EQ(loop_->depth().queues, 0);
}

TEST_F(BatchLoopTest, HalvesGoOnWhereTheFirstOnesEnded) {
  int evaluations = 0;
  control_->break_run = [&](const std::vector<Segment>& sharing) {
    return ++evaluations % 7 == 0 && sharing.front().rows > 1 ? absl::ResourceExhaustedError("full")
                                                              : absl::OkStatus();
  };
  Start({});
  Answer a = Submit(MakeWork(16, 2, 1));
  StepToEnd();
  ExpectRows(a.get(), 16, 1);
}

TEST_F(BatchLoopTest, ARowThatTheDeviceHasNoRoomForIsRefused) {
  control_->break_run = RoomFor(0);
  Start({});
  Answer a = Submit(MakeWork(4, 3, 1));
  StepToEnd();
  EXPECT_EQ(a.get().status(), absl::ResourceExhaustedError("full"));
  EXPECT_EQ(loop_->depth().queues, 0);
}

TEST_F(BatchLoopTest, WhatCannotStartForWantOfRoomIsHalvedToo) {
  int refusals = 2;
  control_->refuse_run = [&](const BatchSpec&) {
    return refusals-- > 0 ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
  Start({});
  Answer a = Submit(MakeWork(8, 3, 1));
  StepToEnd();
  ExpectRows(a.get(), 8, 1);
  EXPECT_EQ(control_->batches().front().segment_rows.front(), 2);
}

TEST_F(BatchLoopTest, ALostDeviceFailsWhatWaitsAndWhatComes) {
  control_->break_run = [](const std::vector<Segment>&) {
    return absl::UnavailableError("the device is lost");
  };
  std::vector<std::string> told;
  Start({.on_device_lost = [&](std::string_view device, const absl::Status& status) {
    told.push_back(absl::StrCat(std::string(device), ": ", status.message()));
  }});
  Answer a = Submit(MakeWork(1, 3, 1)), b = Submit(MakeWork(1, 3, 2)),
         other = Submit(MakeOtherWork(1, 3));
  StepToEnd();
  for (Answer* answer : {&a, &b, &other}) {
    EXPECT_EQ(answer->get().status(), absl::UnavailableError("the device is lost"));
  }
  EXPECT_EQ(Submit(MakeWork(1, 3)).get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(told, testing::ElementsAre("cpu: the device is lost"));
  EXPECT_EQ(loop_->depth().rows, 0);
}

}  // namespace
}  // namespace hyperserve
