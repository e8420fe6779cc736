#include "core/engine/warm_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyperserve {
namespace {

using testing::ElementsAre;

TEST(CapturedRowsMax, OfCostlyFieldsSmallerBucketsAreCaptured) {
  EXPECT_EQ(CapturedRowsMax(33'280), 1024);    // pinwheel
  EXPECT_EQ(CapturedRowsMax(35'922'416), 32);  // fashion
  EXPECT_EQ(CapturedRowsMax(0), 1024);
  EXPECT_EQ(CapturedRowsMax(int64_t{1} << 50), 1);  // a single row always is
}

TEST(TableBucket, PowersOfFourUpToTheLargestThatIsCaptured) {
  const auto images = [](int64_t rows) { return TableBucket(rows, 35'922'416); };
  EXPECT_EQ(images(1), 1);
  EXPECT_EQ(images(2), 4);
  EXPECT_EQ(images(16), 16);
  EXPECT_EQ(images(17), 32);
  EXPECT_EQ(images(33), 64);  // not captured
  EXPECT_EQ(TableBucket(65, 33'280), 256);
  EXPECT_EQ(TableBucket(1024, 33'280), 1024);
  EXPECT_EQ(TableBucket(1025, 33'280), 2048);
}

TEST(IsCaptured, SmallBucketsOfAGpuThatNoKernelSolvesAtOnce) {
  EXPECT_TRUE(IsCaptured("cuda:0", "graph", 32, 35'922'416));
  EXPECT_TRUE(IsCaptured("cuda:0", "readable", 1, 35'922'416));  // it will be
  EXPECT_FALSE(IsCaptured("cuda:0", "graph", 64, 35'922'416));
  EXPECT_FALSE(IsCaptured("cuda:0", "fused", 1, 1));
  EXPECT_FALSE(IsCaptured("cpu", "readable", 1, 1));
}

TEST(TimedRows, EndsOfACpu) {
  EXPECT_THAT(TimedRows("cpu", {.rows_max = 256, .field_macs = 33'280}), ElementsAre(1, 256));
  EXPECT_THAT(TimedRows("cpu", {.rows_max = 1, .field_macs = 33'280}), ElementsAre(1));
}

TEST(TimedRows, FewBucketsOfAGpu) {
  EXPECT_THAT(TimedRows("cuda:0", {.rows_max = 65536, .field_macs = 33'280}),
              ElementsAre(1, 16, 256, 4096, 65536));
  EXPECT_THAT(TimedRows("cuda:1", {.rows_max = 2783, .field_macs = 35'922'416}),
              ElementsAre(1, 16, 256));
  EXPECT_THAT(TimedRows("cuda:0", {.rows_max = 100, .field_macs = 1}), ElementsAre(1, 16, 64));
  EXPECT_THAT(TimedRows("cuda:0", {.rows_max = 1, .field_macs = int64_t{1} << 50}), ElementsAre(1));
}

TEST(PlannedRows, BucketsOfImagesThatAreNotCaptured) {
  EXPECT_THAT(PlannedRows("cuda:0", {.rows_max = 2783, .field_macs = 35'922'416}),
              ElementsAre(64, 128, 256));
  EXPECT_THAT(PlannedRows("cuda:0", {.rows_max = 100, .field_macs = 35'922'416}),
              ElementsAre(64, 128));
  EXPECT_THAT(PlannedRows("cuda:0", {.rows_max = 65536, .field_macs = 33'280}), ElementsAre());
  EXPECT_THAT(PlannedRows("cpu", {.rows_max = 2783, .field_macs = 35'922'416}), ElementsAre());
}

TEST(WarmRows, CapturedBucketsAndTimedOnesTheLargestFirst) {
  const BatchBound images{.rows_max = 2783, .field_macs = 35'922'416};
  EXPECT_THAT(WarmRows("cuda:0", "graph", images), ElementsAre(256, 32, 16, 8, 4, 2, 1));
  EXPECT_THAT(WarmRows("cuda:0", "readable", {.rows_max = 8, .field_macs = 1}),
              ElementsAre(8, 4, 2, 1));
}

TEST(WarmRows, OneWhereSizesMakeNoDifference) {
  const BatchBound bound{.rows_max = 4096, .field_macs = 1};
  EXPECT_THAT(WarmRows("cpu", "readable", bound), ElementsAre(1));
  EXPECT_THAT(WarmRows("cuda:0", "fused", bound), ElementsAre(1));
}

}  // namespace
}  // namespace hyperserve
