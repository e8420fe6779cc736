#include "server/calls/rungs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "tests/server/calls/served_fixture.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(RungsTest, BoundsAreTheFactorTimesTheDistance) {
  const BatchResult rows{.status = {RowStatus::kConverged, RowStatus::kNonFinite},
                         .distance = {0.25, 0.5}};
  const std::vector<double> bounds = BoundsOf(rows, 2.0);
  EXPECT_EQ(bounds[0], 0.5);
  EXPECT_TRUE(std::isnan(bounds[1]));
  EXPECT_TRUE(std::isnan(BoundsOf(rows, std::nullopt)[0]));
}

TEST(RungsTest, RowsGoOnUnlessTheirBoundIsWithin) {
  EXPECT_THAT(RowsThatGoOn({0.1, 0.3, kNaN, 0.2}, 0.2), ElementsAre(1, 2));
  EXPECT_THAT(RowsThatGoOn({0.1}, 0.2), IsEmpty());
}

TEST(RungsTest, SomeRowsOfData) {
  HostTensor data = HostTensor::Zeros(Dtype::kF32, {4, 2});
  for (size_t i = 0; i < 8; ++i) data.as<float>()[i] = static_cast<float>(i);
  Work all{.segment = {.rows = 4, .data = data.view()}, .bytes = 400, .macs = 800};
  all.spec.entry = Entry::kState;
  const Work some = WorkOfRows(all, {1, 3});
  EXPECT_EQ(some.segment.rows, 2);
  EXPECT_EQ(some.segment.data.shape, (Shape{2, 2}));
  EXPECT_THAT(AsDoubles(some.segment.data), ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(some.bytes, 200);
  EXPECT_EQ(some.macs, 400);
  EXPECT_EQ(some.spec, all.spec);
}

TEST(RungsTest, SomeRowsOfNoiseAreTheStatesThatItIs) {
  for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
    Work all{.segment = {.rows = 10, .seed = 3, .first_row = 100}, .bytes = 100};
    all.spec.model = ServedTinyFlow()->model;
    all.spec.entry = Entry::kNoise;
    all.spec.tier = tier;
    const int64_t width = all.spec.model->state_elements();
    std::vector<double> noise(static_cast<size_t>(10 * width));
    PhiloxNormals(3, 100, 10, width, noise);
    const Work some = WorkOfRows(all, {7, 9});
    EXPECT_EQ(some.spec.entry, Entry::kState);
    EXPECT_EQ(some.spec.dtype, tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32);
    EXPECT_EQ(some.segment.data.dtype, some.spec.dtype);
    const std::vector<double> found = AsDoubles(some.segment.data);
    ASSERT_EQ(found.size(), static_cast<size_t>(2 * width));
    for (size_t i = 0; i < found.size(); ++i) {
      const auto row_width = static_cast<size_t>(width);
      const double wanted = noise[(i < row_width ? 7 : 9) * row_width + i % row_width];
      EXPECT_EQ(found[i], tier == Tier::kDouble ? wanted : static_cast<float>(wanted));
    }
    EXPECT_EQ(some.bytes, 20 + static_cast<int64_t>(some.segment.data.bytes.size()));
  }
}

WorkResult Solved(std::vector<float> numbers, int32_t nfe, const char* engine) {
  const auto count = numbers.size();
  WorkResult result{.rows = {.status = std::vector(count, RowStatus::kConverged),
                             .state = HostTensor::Zeros(Dtype::kF32, {static_cast<int64_t>(count)}),
                             .nfe = std::vector(count, nfe),
                             .correction_evaluations = std::vector(count, 1),
                             .macs = std::vector(count, int64_t{100} * nfe),
                             .bucket = static_cast<int64_t>(count)},
                    .engine = engine,
                    .error_bound = std::vector(count, 0.5 / nfe)};
  std::copy(numbers.begin(), numbers.end(), result.rows.state.as<float>().begin());
  return result;
}

TEST(RungsTest, LaterPlansReplaceAnswersAndAddCosts) {
  WorkResult all = Solved({1, 2, 3}, 1, "fused");
  WorkResult part = Solved({20, 30}, 4, "readable");
  part.rows.status[1] = RowStatus::kNonFinite;
  PutRows(part, {1, 2}, all);
  EXPECT_THAT(AsDoubles(all.rows.state.view()), ElementsAre(1, 20, 30));
  EXPECT_THAT(all.rows.status,
              ElementsAre(RowStatus::kConverged, RowStatus::kConverged, RowStatus::kNonFinite));
  EXPECT_THAT(all.rows.nfe, ElementsAre(1, 5, 5));
  EXPECT_THAT(all.rows.correction_evaluations, ElementsAre(1, 2, 2));
  EXPECT_THAT(all.rows.macs, ElementsAre(100, 500, 500));
  EXPECT_THAT(all.error_bound, ElementsAre(0.5, 0.125, 0.125));
  EXPECT_EQ(all.rows.bucket, 3);
  EXPECT_EQ(all.engine, "readable");
}

}  // namespace
}  // namespace hyperserve
