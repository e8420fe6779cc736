// What a base model may start from, and which of its weights are kept.
#include "training/fit/fit_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/model/net/model.h"
#include "tests/training/fit/small_flow.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"
#include "training/optimise/curve.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

Recipe SmallRecipe() {
  return ParseRecipe(
             SmallFlow(
                 R"("fit": {"optimiser": {"iterations": 60, "batch": 64, "rate": 0.05, "final_rate": 0.01},
          "solver": "midpoint:3", "check_every": 20, "check_rows": 256})"))
      .value();
}

ModelFiles Fitted(const Recipe& recipe, const std::string& start_from = "") {
  return FitModel(recipe, "", at::kCPU, {.start_from = start_from}).value();
}

TEST(FitModelTest, AModelMayStartFromTheWeightsOfAnother) {
  const ModelFiles first = Fitted(SmallRecipe());
  const ModelFiles second = Fitted(SmallRecipe(), first.weights);
  double least = first.curve.points.front().error;
  for (const CurvePoint& point : first.curve.points) least = std::fmin(least, point.error);
  EXPECT_EQ(second.curve.points.front().error, least);
  EXPECT_LT(second.curve.points.front().error, first.curve.points.front().error - 0.2);
  Recipe other = SmallRecipe();
  other.mutable_model()->mutable_field(0)->mutable_linear()->set_out(8);
  other.mutable_model()->mutable_field(2)->mutable_linear()->set_in(8);
  EXPECT_THAT(
      std::string(FitModel(other, "", at::kCPU, {.start_from = first.weights}).status().message()),
      HasSubstr("the model to start from is another one: its field.0.bias is [16]"));
}

TEST(FitModelTest, MeasuringChangesNothing) {
  Recipe unmeasured = SmallRecipe();
  unmeasured.mutable_fit()->set_check_every(0);
  unmeasured.mutable_fit()->set_check_rows(0);
  const ModelFiles measured = Fitted(SmallRecipe()), other = Fitted(unmeasured);
  EXPECT_EQ(measured.curve.points.back().loss, other.curve.points.back().loss);
  EXPECT_EQ(measured.curve.points.back().iterations, 60);
}

TEST(FitModelTest, TheBestWeightsAreKeptAndAPlateauEndsTheFit) {
  const ModelFiles good = Fitted(SmallRecipe());
  Recipe ruinous = SmallRecipe();
  ruinous.mutable_fit()->mutable_optimiser()->set_rate(3);
  ruinous.mutable_fit()->mutable_optimiser()->set_final_rate(3);
  ruinous.mutable_fit()->mutable_optimiser()->set_patience(40);
  const ModelFiles kept = Fitted(ruinous, good.weights);
  EXPECT_EQ(kept.weights, good.weights);
  EXPECT_EQ(kept.remark, "stopped at a plateau, iteration 40 of 60");
}

TEST(FitModelTest, PatienceNeedsHeldOutRows) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text = R"({"format": 1, "name": "small", "data": {"points": {"validation_rows": 256,
      "held_out_rows": 1}}, "fit": {"optimiser": {"iterations": 60, "batch": 64, "rate": 0.05,
      "patience": 10}, "solver": "midpoint:3", "check_every": 20, "check_rows": 256}})";
    text.replace(text.find(from), from.size(), to);
    return std::string(ParseRecipe(text).status().message());
  };
  EXPECT_EQ(refusal("60", "60"), "");
  EXPECT_THAT(refusal(R"(, "check_every": 20, "check_rows": 256)", ""),
              HasSubstr("fit.optimiser.patience: needs fit.check_every and fit.check_rows"));
  EXPECT_THAT(refusal(R"(, "check_rows": 256)", ""), HasSubstr("fit.check_rows: above 0"));
  EXPECT_THAT(refusal("\"patience\": 10", "\"patience\": -1"), HasSubstr("not negative"));
}

}  // namespace
}  // namespace hyperserve
