#include "core/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/plan/method.h"
#include "core/plan/plan_number.h"
#include "core/plan/row_status.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Canonical(std::string_view text) {
  const absl::StatusOr<Plan> plan = ParsePlan(text);
  return plan.ok() ? PrintPlan(*plan) : std::string(plan.status().message());
}

std::string ErrorOf(std::string_view text) {
  const absl::StatusOr<Plan> plan = ParsePlan(text);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(plan.status().message());
}

// Numbers that printers get wrong first.
const double kNumbers[] = {1e-5,
                           1.0,
                           0.1,
                           0.5,
                           5e-4,
                           1e-10,
                           1.0 / 3,
                           2.5e10,
                           1e23,
                           123456.0,
                           9007199254740993.0,
                           std::numeric_limits<double>::min(),
                           std::numeric_limits<double>::denorm_min(),
                           std::numeric_limits<double>::max(),
                           0.1 + 0.2,
                           1e15,
                           1e16,
                           1e-6};

using enum StepGrid::Kind;
const StepGrid kGrids[] = {{.kind = kCosine},
                           {.kind = kLogitNormal},
                           {.kind = kSway, .sway = -1},
                           {.kind = kSway, .sway = 0},
                           {.kind = kSway, .sway = 1.0 / 3},
                           {.kind = kListed, .shares = {0, 1}},
                           {.kind = kListed, .shares = {0, 1e-6, 0.1 + 0.2, 1}}};

std::vector<Plan> Grid() {
  std::vector<Plan> plans;
  for (const Tier tier : {Tier::kExact, Tier::kFast, Tier::kDouble}) {
    plans.push_back({.choice = DefaultPlan{}, .tier = tier});
    for (const MethodName& name : kMethodNames) {
      for (const double alpha : {0.75, 1.0, 1.0 / 3, 0.01}) {
        const MethodChoice method = {.method = name.method,
                                     .alpha = name.method == Method::kAlpha ? alpha : 0.0};
        for (const int steps : {1, 4, 10, std::numeric_limits<int>::max()}) {
          for (const bool hypersolved : {false, true}) {
            plans.push_back(
                {.choice = FixedPlan{.method = method, .steps = steps, .hypersolved = hypersolved},
                 .tier = tier});
          }
        }
        if (!name.embedded) continue;
        for (const double rtol : kNumbers) {
          plans.push_back(
              {.choice = AdaptivePlan{.method = method, .rtol = rtol, .atol = rtol}, .tier = tier});
          plans.push_back(
              {.choice = AdaptivePlan{.method = method, .rtol = rtol, .atol = 1e-9}, .tier = tier});
        }
      }
    }
    for (const StepGrid& grid : kGrids) {
      const int steps = grid.shares.empty() ? 7 : static_cast<int>(grid.shares.size()) - 1;
      for (const bool hypersolved : {false, true}) {
        plans.push_back({.choice = FixedPlan{.method = {.method = Method::kHeun},
                                             .steps = steps,
                                             .hypersolved = hypersolved,
                                             .grid = grid},
                         .tier = tier});
      }
    }
    for (const int count : {1, 4, kTableEvaluationsMax - 1}) {
      const MethodChoice ab2 = {.method = Method::kAb2}, learned = {.method = Method::kLearned};
      plans.push_back({.choice = FixedPlan{.method = ab2, .steps = count}, .tier = tier});
      for (const int evaluations : {count - 1, count + 1}) {
        plans.push_back(
            {.choice = FixedPlan{.method = learned, .steps = evaluations, .hypersolved = true},
             .tier = tier});
      }
    }
    for (const double number : kNumbers) {
      plans.push_back({.choice = AutoPlan{.target_error = number}, .tier = tier});
      plans.push_back(
          {.choice = AutoPlan{.target_error = 0.01, .time_budget_seconds = number}, .tier = tier});
      plans.push_back({.choice = AutoPlan{.time_budget_seconds = number}, .tier = tier});
    }
  }
  return plans;
}

TEST(Plan, ParserAndPrinterAreInverses) {
  for (const Plan& plan : Grid()) {
    ASSERT_TRUE(ValidatePlan(plan).ok()) << PrintPlan(plan);
    const std::string text = PrintPlan(plan);
    const absl::StatusOr<Plan> parsed = ParsePlan(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    EXPECT_TRUE(*parsed == plan) << text;
    EXPECT_EQ(PrintPlan(*parsed), text);
  }
}

TEST(Plan, DifferentPlansAreSpelledDifferently) {
  std::map<std::string, Plan> seen;
  for (const Plan& plan : Grid()) {
    const auto [entry, fresh] = seen.emplace(PrintPlan(plan), plan);
    EXPECT_TRUE(fresh || entry->second == plan) << entry->first;
  }
}

TEST(Plan, TheSpellingsOfTheDesign) {
  for (const char* text : {"euler:4",
                           "hyper_euler:2",
                           "alpha(0.75):3",
                           "hyper_heun:1/fast",
                           "dopri5:1e-5",
                           "auto:1e-2,2ms",
                           "default",
                           "dopri5:1e-5,1e-7/double",
                           "heun_euler:7",
                           "hyper_heun_euler:7",
                           "rk4_38:2",
                           "auto:2ms",
                           "auto:5e-3",
                           "auto:1e-2,per_row",
                           "auto:5e-3,per_row/double",
                           "tsit5:1e0",
                           "hyper_dopri5:3",
                           "default/fast",
                           "hyper_alpha(1):2",
                           "auto:0.5ms",
                           "bosh3:2.5e-4",
                           "ab2:4",
                           "learned:4",
                           "learned:0",
                           "learned:10/double",
                           "euler:4@cosine",
                           "rk4:2@logit_normal",
                           "hyper_heun:8@sway(-1)/fast",
                           "heun:2@sway(0.5)",
                           "euler:3@[0,0.1,0.3,1]"}) {
    EXPECT_EQ(Canonical(text), text);
  }
}

TEST(Plan, OtherSpellingsBecomeTheCanonicalOne) {
  EXPECT_EQ(Canonical("dopri5:0.00001"), "dopri5:1e-5");
  EXPECT_EQ(Canonical("dopri5:1.0"), "dopri5:1e0");
  EXPECT_EQ(Canonical("dopri5:10e-06"), "dopri5:1e-5");
  EXPECT_EQ(Canonical("dopri5:1e-5,1e-5"), "dopri5:1e-5");
  EXPECT_EQ(Canonical("dopri5:1e+2"), "dopri5:1e2");
  EXPECT_EQ(Canonical("euler:4/exact"), "euler:4");
  EXPECT_EQ(Canonical("euler:007"), "euler:7");
  EXPECT_EQ(Canonical("alpha(0.750):3"), "alpha(0.75):3");
  EXPECT_EQ(Canonical("dopri5:1E-5"), "dopri5:1e-5");
  EXPECT_EQ(Canonical("auto:.01,2.0ms"), "auto:1e-2,2ms");
  EXPECT_EQ(Canonical("euler:4@uniform"), "euler:4");
  EXPECT_EQ(Canonical("euler:2@[0,.50,1.0]"), "euler:2@[0,0.5,1]");
  EXPECT_EQ(Canonical("euler:2@[0.0, 0.5, 1.0]"), "euler:2@[0,0.5,1]");
  EXPECT_EQ(Canonical("euler:4@sway(-1.0)/exact"), "euler:4@sway(-1)");
}

TEST(Plan, ErrorsNameTheTextTheReasonAndTheWayOut) {
  EXPECT_THAT(ErrorOf("eulr:4"), AllOf(HasSubstr("plan 'eulr:4'"), HasSubstr("'eulr'"),
                                       HasSubstr("euler, midpoint"), HasSubstr("dopri5")));
  EXPECT_THAT(ErrorOf("euler"), AllOf(HasSubstr("no ':'"), HasSubstr("euler:4")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no ':'"));
  EXPECT_THAT(ErrorOf("euler:0"), AllOf(HasSubstr("is 0"), HasSubstr("at least 1")));
  EXPECT_THAT(ErrorOf("euler:-1"), AllOf(HasSubstr("'-1'"), HasSubstr("number of steps")));
  EXPECT_THAT(ErrorOf("euler:99999999999"), HasSubstr("2147483647"));
  EXPECT_THAT(ErrorOf("euler:"), HasSubstr("number of steps"));
  EXPECT_THAT(ErrorOf("euler:4x"), HasSubstr("'4x'"));
  EXPECT_THAT(ErrorOf("euler: 4"), HasSubstr("' 4'"));
  EXPECT_THAT(ErrorOf("rk4:1e-3"), AllOf(HasSubstr("rk4:4"), HasSubstr("heun_euler, bosh3")));
  EXPECT_THAT(ErrorOf("hyper_dopri5:1e-3"), AllOf(HasSubstr("'1e-3'"), HasSubstr("hyper_euler:2")));
  EXPECT_THAT(ErrorOf("dopri5:1e-3,5"), HasSubstr("'5' is not a tolerance"));
  EXPECT_THAT(ErrorOf("dopri5:1e-3,"), HasSubstr("'' is not a tolerance"));
  EXPECT_THAT(ErrorOf("dopri5:1e-3,1e-3,1e-3"), HasSubstr("tolerance"));
  EXPECT_THAT(ErrorOf("dopri5:0.0"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:-1e-3"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:1e999"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:1e-999"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:nane"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:1e99999999999"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("dopri5:1.2.3"), HasSubstr("above zero"));
  EXPECT_THAT(ErrorOf("alpha:3"), HasSubstr("alpha(0.75):3"));
  EXPECT_THAT(ErrorOf("alpha(1.5):3"), AllOf(HasSubstr("1.5"), HasSubstr("[0.01, 1]")));
  EXPECT_THAT(ErrorOf("alpha(0):3"), HasSubstr("[0.01, 1]"));
  EXPECT_THAT(ErrorOf("alpha(1e-8):8"), HasSubstr("[0.01, 1]"));
  EXPECT_THAT(ErrorOf("alpha(0.5:3"), HasSubstr("'(0.5'"));
  EXPECT_THAT(ErrorOf("heun(0.5):3"), HasSubstr("only alpha does"));
  EXPECT_THAT(ErrorOf("euler:4/quick"), AllOf(HasSubstr("'quick'"), HasSubstr("exact, fast")));
  EXPECT_THAT(ErrorOf("auto:5"), HasSubstr("1e-5"));
  EXPECT_THAT(ErrorOf("auto:1e-2,2"), AllOf(HasSubstr("'2'"), HasSubstr("2ms")));
  EXPECT_THAT(ErrorOf("auto:2ms,1e-2"), HasSubstr("'2ms'"));
  EXPECT_THAT(ErrorOf("auto:0ms"), HasSubstr("milliseconds"));
  EXPECT_THAT(ErrorOf("auto:2ms,per_row"), HasSubstr("no time budget"));
  EXPECT_THAT(ErrorOf("auto:1e-2,2ms,per_row"), HasSubstr("auto:1e-2,per_row"));
  EXPECT_THAT(ErrorOf("auto:per_row"), HasSubstr("'per_row'"));
  EXPECT_THAT(ErrorOf("hyper_auto:1e-2"), HasSubstr("unknown method 'auto'"));
  EXPECT_THAT(ErrorOf("hyper_learned:4"), HasSubstr("learned:4"));
  EXPECT_THAT(ErrorOf("learned:1e-3"), AllOf(HasSubstr("'1e-3'"), HasSubstr("learned:4")));
  EXPECT_THAT(ErrorOf("learned:-1"), HasSubstr("'-1'"));
  EXPECT_THAT(ErrorOf("hyper_ab2:4"), HasSubstr("no correction"));
  EXPECT_THAT(ErrorOf("ab2:1e-3"), HasSubstr("ab2:4"));
  EXPECT_THAT(ErrorOf("ab2:0"), HasSubstr("at least 1"));
  EXPECT_THAT(ErrorOf("ab2:64"), HasSubstr("at most 63"));
  EXPECT_THAT(ErrorOf("learned:65"), HasSubstr("[0, 64]"));
  EXPECT_THAT(ErrorOf("Euler:4"), HasSubstr("unknown method 'Euler'"));
}

TEST(Plan, ErrorsOfGridsNameTheWayOut) {
  EXPECT_THAT(ErrorOf("euler:4@cos"), AllOf(HasSubstr("grid 'cos'"), HasSubstr("sway(c)")));
  for (const char* grid : {"", "sway", "sway(", "sway(x)", "cosine(1)", "[]", "[0,1", "[0,-1]",
                           "[., 1]", "[0..0,1]"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("euler:4@", grid)),
                HasSubstr(absl::StrCat("unknown grid '", grid, "'")));
  }
  EXPECT_THAT(ErrorOf("euler:4@sway(-2)"), AllOf(HasSubstr("sway is -2"), HasSubstr("[-1, 1.75]")));
  EXPECT_THAT(ErrorOf("euler:4@[0,0.5,1]"), HasSubstr("lists 3 shares; 4 steps take 5"));
  EXPECT_THAT(ErrorOf("euler:2@[0,0.5,0.9]"), HasSubstr("runs from 0 to 0.9"));
  EXPECT_THAT(ErrorOf("euler:3@[0,0.5,0.5,1]"), HasSubstr("share 0.5 follows 0.5"));
  EXPECT_THAT(ErrorOf("dopri5:1e-3@cosine"), HasSubstr("behind a number of steps"));
  EXPECT_THAT(ErrorOf("ab2:4@cosine"), HasSubstr("'ab2' takes no grid"));
  EXPECT_THAT(ErrorOf("learned:4@cosine"), HasSubstr("'learned' takes no grid"));
  EXPECT_THAT(ErrorOf("auto:1e-2@cosine"), HasSubstr("is not a tolerance"));
}

TEST(StepGrid, SharesAreThoseOfTheFormulas) {
  for (int k = 0; k <= 4; ++k) {
    const double u = k / 4.0;
    EXPECT_EQ(ShareAt({}, k, 4), u);
    EXPECT_NEAR(ShareAt({.kind = kCosine}, k, 4), std::pow(std::sin(M_PI / 2 * u), 2), 1e-15);
    EXPECT_NEAR(ShareAt({.kind = kSway, .sway = -1}, k, 4), 1 - std::cos(M_PI / 2 * u), 1e-15);
  }
  // The quartiles of a standard normal are -+0.6744897501960817.
  EXPECT_NEAR(ShareAt({.kind = kLogitNormal}, 3, 4), 1 / (1 + std::exp(-0.6744897501960817)),
              1e-14);
  EXPECT_NEAR(ShareAt({.kind = kLogitNormal}, 1, 4), 1 / (1 + std::exp(0.6744897501960817)), 1e-14);
  EXPECT_EQ(ShareAt({.kind = kListed, .shares = {0, 0.1, 1}}, 1, 2), 0.1);
  const StepShares extremes = ExtremeSteps({.kind = kListed, .shares = {0, 0.125, 0.5, 1}}, 3);
  EXPECT_EQ(extremes.shortest, 0.125);
  EXPECT_EQ(extremes.longest, 0.5);
}

TEST(StepGrid, EveryStepMovesOn) {
  for (const StepGrid& grid :
       {StepGrid{.kind = kCosine}, StepGrid{.kind = kLogitNormal},
        StepGrid{.kind = kSway, .sway = -1}, StepGrid{.kind = kSway, .sway = 1.75}}) {
    for (const int steps : {1, 2, 3, 1000}) {
      EXPECT_EQ(ShareAt(grid, 0, steps), 0.0);
      EXPECT_EQ(ShareAt(grid, steps, steps), 1.0);
      EXPECT_GT(ExtremeSteps(grid, steps).shortest, 1e-7) << PrintStepGrid(grid) << steps;
    }
  }
}

TEST(Plan, ValidationRefusesWhatTheParserWould) {
  const double nan = std::nan("");
  const MethodChoice dopri5 = {.method = Method::kDopri5};
  for (const Plan& plan : std::vector<Plan>{
           {.choice = FixedPlan{.steps = 0}},
           {.choice = FixedPlan{.steps = -3}},
           {.choice = FixedPlan{.method = {.method = Method::kLearned}}},
           {.choice =
                FixedPlan{
                    .method = {.method = Method::kLearned}, .steps = -1, .hypersolved = true}},
           {.choice = FixedPlan{.method = {.method = Method::kAb2}, .hypersolved = true}},
           {.choice = FixedPlan{.method = {.method = Method::kAlpha, .alpha = 0.0}}},
           {.choice = FixedPlan{.method = {.method = Method::kAlpha, .alpha = 1.01}}},
           {.choice = FixedPlan{.method = {.method = Method::kAlpha, .alpha = nan}}},
           {.choice = FixedPlan{.method = {.method = Method::kHeun, .alpha = 0.5}}},
           {.choice = FixedPlan{.method = {.method = static_cast<Method>(99)}}},
           {.choice = AdaptivePlan{.method = {.method = Method::kEuler}}},
           {.choice = AdaptivePlan{.method = dopri5, .rtol = 0.0}},
           {.choice = AdaptivePlan{.method = dopri5, .rtol = nan}},
           {.choice = AdaptivePlan{.method = dopri5, .atol = INFINITY}},
           {.choice = AutoPlan{}},
           {.choice = AutoPlan{.target_error = -1.0}},
           {.choice = AutoPlan{.time_budget_seconds = nan}},
           {.choice = DefaultPlan{}, .tier = static_cast<Tier>(7)}}) {
    EXPECT_EQ(ValidatePlan(plan).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Method, SpelledAloneIsParsedAndPrinted) {
  for (const MethodName& name : kMethodNames) {
    if (name.method == Method::kAlpha) continue;
    EXPECT_EQ(PrintMethod({.method = name.method}), name.name);
    EXPECT_EQ(*ParseMethod(name.name), (MethodChoice{.method = name.method}));
  }
  for (const MethodName& name : kTableMethodNames) {
    EXPECT_EQ(PrintMethod({.method = name.method}), name.name);
    EXPECT_EQ(*ParseMethod(name.name), (MethodChoice{.method = name.method}));
  }
  const MethodChoice alpha = {.method = Method::kAlpha, .alpha = 0.75};
  EXPECT_EQ(PrintMethod(alpha), "alpha(0.75)");
  EXPECT_EQ(*ParseMethod("alpha(0.75)"), alpha);
  EXPECT_FALSE(ParseMethod("alpha(2)").ok());
  EXPECT_FALSE(ParseMethod("alpha").ok());
  EXPECT_FALSE(ParseMethod("../heun").ok());
}

TEST(PlanNumber, AnyDoubleSurvivesPrinting) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random() >> 1;  // positive
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value) || value == 0.0) continue;
    EXPECT_EQ(ParsePositive(PrintScientific(value)), value);
    EXPECT_EQ(ParsePositive(PrintDecimal(value)), value);
    EXPECT_EQ(ParsePositive(PrintDecimal(value, 3), -3), value);
  }
}

TEST(PlanNumber, DecimalsStayReadable) {
  EXPECT_EQ(PrintDecimal(0.002, 3), "2");
  EXPECT_EQ(PrintDecimal(0.0005, 3), "0.5");
  EXPECT_EQ(PrintDecimal(1.5, 3), "1500");
  EXPECT_EQ(PrintDecimal(0.75), "0.75");
  EXPECT_EQ(PrintDecimal(12.5), "12.5");
  EXPECT_EQ(PrintDecimal(1e-5), "0.00001");
  EXPECT_EQ(PrintDecimal(1e-6), "1e-6");
  EXPECT_EQ(PrintDecimal(1e16), "1e16");
}

TEST(Names, AreInverses) {
  for (const Tier tier : {Tier::kExact, Tier::kFast, Tier::kDouble}) {
    EXPECT_EQ(TierFromName(TierName(tier)), tier);
  }
  EXPECT_EQ(TierFromName("Fast"), std::nullopt);
  EXPECT_EQ(MethodFromName("rk5"), std::nullopt);
  EXPECT_EQ(RowStatusName(RowStatus::kConverged), "converged");
  EXPECT_EQ(RowStatusName(RowStatus::kStepLimit), "step_limit");
  EXPECT_EQ(RowStatusName(RowStatus::kStepUnderflow), "step_underflow");
  EXPECT_EQ(RowStatusName(RowStatus::kNonFinite), "non_finite");
}

}  // namespace
}  // namespace hyperserve
