// The pure decisions: the gate's, and which generations are tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/model/repository/verdicts.h"
#include "server/registry/gate_decision.h"
#include "server/registry/shelf_snapshot.h"

namespace hyperserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct GateCase {
  const char* name;
  std::vector<GateMeasurement> measurements;
  bool passes;
  const char* reason;
};

GateMeasurement At(int steps, double candidate, double base,
                   std::optional<double> active = std::nullopt) {
  return {.steps = steps, .candidate_error = candidate, .active_error = active, .base_error = base};
}

GateMeasurement Unclaimed(int steps, double candidate, double base,
                          std::optional<double> active = std::nullopt) {
  GateMeasurement at = At(steps, candidate, base, active);
  at.claimed = false;
  return at;
}

GateMeasurement Learned(int evaluations, double candidate, double base, const char* base_plan) {
  return {.steps = evaluations,
          .candidate_error = candidate,
          .base_error = base,
          .base_plan = base_plan};
}

TEST(DecideGateTest, Table) {
  const GateCase cases[] = {
      {"nothing measured", {}, false, "no number of steps"},
      {"first, better than base",
       {At(1, 0.1, 0.2)},
       true,
       "K = 1: error 0.1, classical method 0.2"},
      {"as bad as base",
       {At(1, 0.2, 0.2)},
       false,
       "K = 1: error 0.2, classical method 0.2 (does not beat"},
      {"worse than base", {At(2, 0.3, 0.2)}, false, "K = 2: error 0.3"},
      {"worse at one K only",
       {At(1, 0.1, 0.2), At(2, 0.3, 0.2)},
       false,
       "K = 2: error 0.3, classical method 0.2 (does not beat"},
      {"learned, as good as the best classical plan",
       {Learned(4, 0.2, 0.2, "rk4:1")},
       true,
       "n = 4: error 0.2, rk4:1 0.2"},
      {"learned, worse than it",
       {Learned(2, 0.1, 0.2, "heun:1"), Learned(4, 0.21, 0.2, "rk4:1")},
       false,
       "n = 4: error 0.21, rk4:1 0.2 (more than rk4:1, which costs no more)"},
      {"better than active", {At(1, 0.1, 0.2, 0.11)}, true, "active 0.11"},
      {"within the margin", {At(1, 0.1019, 0.2, 0.1)}, true, "active 0.1"},
      {"beyond the margin",
       {At(1, 0.1021, 0.2, 0.1)},
       false,
       "more than 2 % worse than the active"},
      {"active worse than base does not help",
       {At(1, 0.25, 0.2, 0.3)},
       false,
       "does not beat the classical"},
      {"both at rounding", {At(1, 3e-7, 0.2, 1e-7)}, true, ""},
      {"above rounding", {At(1, 3e-6, 0.2, 1e-7)}, false, "worse than the active"},
      {"worse than the classical method at a K that it serves without a claim",
       {At(10, 0.1, 0.2), Unclaimed(2, 0.283, 0.256)},
       false,
       "served without a claim, and more than 2 % worse than the classical method"},
      {"no win at such a K", {At(10, 0.1, 0.2), Unclaimed(2, 0.2561, 0.256)}, true, ""},
      {"worse than active at such a K",
       {At(10, 0.1, 0.2), Unclaimed(2, 0.2, 0.256, 0.125)},
       false,
       "worse than the active"},
      {"as bad as active at such a K", {At(1, 0.1, 0.2), Unclaimed(2, 0.3, 0.256, 0.3)}, true, ""},
      {"not a number", {At(1, kNan, 0.2)}, false, "not finite"},
      {"infinite", {At(1, kInfinity, kInfinity)}, false, "not finite"},
      {"base diverges", {At(1, 0.5, kInfinity)}, true, ""},
      {"active diverges", {At(1, 0.1, 0.2, kInfinity)}, true, ""},
  };
  for (const GateCase& c : cases) {
    const Verdict verdict = DecideGate(c.measurements, 0.02);
    EXPECT_EQ(verdict.passed, c.passes) << c.name << ": " << verdict.reason;
    EXPECT_THAT(verdict.reason, HasSubstr(c.reason)) << c.name;
  }
}

TEST(DecideGateTest, MarginIsTheCallers) {
  const std::vector<GateMeasurement> measurements = {At(1, 0.109, 0.2, 0.1)};
  EXPECT_FALSE(DecideGate(measurements, 0.0).passed);
  EXPECT_TRUE(DecideGate(measurements, 0.1).passed);
}

const Verdict kPassed = {.passed = true, .reason = "won"};
const Verdict kRefused = {.passed = false, .reason = "lost"};

TEST(StartOrderTest, ActiveThenTheOthersThatPassed) {
  EXPECT_THAT(StartOrder({.generations = {1, 2, 3, 4, 5, 6},
                          .verdicts = {{1, kPassed}, {3, kPassed}, {4, kRefused}, {5, kPassed}},
                          .active = 3}),
              ElementsAre(3, 5, 1));
  EXPECT_THAT(StartOrder({.generations = {1}, .active = 7}), ElementsAre(7));
}

TEST(StartOrderTest, WithoutActiveTheHighestThatWasNotRefused) {
  EXPECT_THAT(StartOrder({.generations = {1, 2, 3, 4}, .verdicts = {{1, kPassed}, {3, kRefused}}}),
              ElementsAre(4, 2, 1));
  EXPECT_THAT(StartOrder({}), IsEmpty());
}

TEST(NextUntriedTest, LowestWithoutVerdict) {
  EXPECT_EQ(NextUntried({.generations = {1, 2, 3, 4}, .verdicts = {{1, kPassed}, {2, kRefused}}}),
            3);
  EXPECT_EQ(NextUntried({.generations = {1}, .verdicts = {{1, kRefused}, {2, kPassed}}}),
            std::nullopt);
}

// Verdicts of generations 1 to `last`.
std::map<int64_t, Verdict> PassedUpTo(int64_t last) {
  std::map<int64_t, Verdict> verdicts;
  for (int64_t number = 1; number <= last; ++number) verdicts[number] = kPassed;
  return verdicts;
}

TEST(NextUntriedTest, WhatIsBelowTheVerdictsThatAreKeptWasTried) {
  std::map<int64_t, Verdict> verdicts = PassedUpTo(150);
  ForgetOld({}, verdicts);
  EXPECT_EQ(NextUntried({.generations = {1, 50, 150}, .verdicts = verdicts, .active = 150}),
            std::nullopt);
  EXPECT_EQ(NextUntried({.generations = {1, 50, 150, 151}, .verdicts = verdicts, .active = 150}),
            151);
}

TEST(ForgetOldTest, KeepsTheNewestAndWhatIsServed) {
  constexpr auto kKept = static_cast<int64_t>(kVerdictsKept);
  std::map<int64_t, Verdict> verdicts = PassedUpTo(kKept - 1);
  EXPECT_EQ(OldestKept(verdicts), 0);
  ForgetOld({}, verdicts);
  EXPECT_EQ(verdicts.size(), kVerdictsKept - 1);
  verdicts = PassedUpTo(kKept + 20);
  EXPECT_EQ(OldestKept(verdicts), 21);
  ForgetOld({7, 0, 99}, verdicts);
  EXPECT_EQ(verdicts.size(), kVerdictsKept + 1);
  EXPECT_EQ(verdicts.begin()->first, 7);
  EXPECT_EQ(OldestKept(verdicts), 21);  // what is kept besides does not move it
}

TEST(PreviousOrderTest, PassedBelowActive) {
  EXPECT_THAT(PreviousOrder({.generations = {1, 2, 3, 4, 5},
                             .verdicts = {{1, kPassed}, {2, kRefused}, {3, kPassed}, {5, kPassed}},
                             .active = 4}),
              ElementsAre(3, 1));
  EXPECT_THAT(PreviousOrder({.generations = {1}, .verdicts = {{1, kPassed}}}), IsEmpty());
}

}  // namespace
}  // namespace hyperserve
