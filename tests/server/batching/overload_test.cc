// More work than the solvers can do, and clients that take more than their share, on simulated
// solvers.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/method.h"
#include "server/batching/work.h"
#include "tests/server/batching/simulation.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Like images on a CPU: an evaluation costs what its rows cost.
const Machine kMachine{.fixed = std::chrono::microseconds(25),
                       .row = std::chrono::microseconds(700),
                       .batch_rows_max = 4};
constexpr nanoseconds kDeadline = milliseconds(500);

// One image a call under rk4:1; Poisson arrivals at this rate, for `seconds`.
std::vector<Call> Stream(double rate, double seconds, const Call& like, unsigned seed = 7) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(rate);
  std::vector<Call> calls;
  for (double at = gap(random); at < seconds; at += gap(random)) {
    calls.push_back(like);
    calls.back().at = nanoseconds(static_cast<int64_t>(1e9 * at));
  }
  return calls;
}

std::vector<Call> Together(std::vector<Call> a, const std::vector<Call>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::stable_sort(a, {}, &Call::at);
  return a;
}

struct Curve {
  double goodput = 0;           // answers in time, a second
  double accepted_late = 0;     // share of what was let in
  double refused = 0;           // share of all
  double refusal_seconds = 0;   // the slowest
  milliseconds retry_after{0};  // the longest
};

Curve Offer(double times_capacity, const Machine& machine = kMachine) {
  const double capacity = kSolvers / (4 * machine.RowSeconds());
  constexpr double kSeconds = 5;
  const std::vector<Call> calls =
      Stream(times_capacity * capacity, kSeconds, {.deadline = kDeadline});
  Simulation simulation(machine);
  Curve curve;
  double accepted = 0, late = 0;
  for (const Simulation::Outcome& outcome : simulation.Run(calls)) {
    if (absl::IsResourceExhausted(outcome.status)) {
      curve.refused += 1 / static_cast<double>(calls.size());
      curve.refusal_seconds = std::max(curve.refusal_seconds, outcome.seconds);
      curve.retry_after = std::max(curve.retry_after, outcome.retry_after);
      EXPECT_GT(outcome.retry_after.count(), 0);
      continue;
    }
    ++accepted;
    if (outcome.status.ok()) {
      curve.goodput += 1 / kSeconds;
    } else {
      ++late;
    }
  }
  curve.accepted_late = late / accepted;
  return curve;
}

TEST(Overload, GoodputHoldsAndWhatIsLetInIsInTime) {
  const Curve peak = Offer(0.95);
  EXPECT_EQ(peak.accepted_late, 0);
  for (const double times_capacity : {2.0, 10.0}) {
    const Curve curve = Offer(times_capacity);
    EXPECT_GE(curve.goodput, 0.9 * peak.goodput) << times_capacity;
    EXPECT_LE(curve.accepted_late, 0.01) << times_capacity;
    EXPECT_GE(curve.refused, 0.9 * (1 - 1 / times_capacity)) << times_capacity;
    EXPECT_LE(curve.refusal_seconds, 0.005) << times_capacity;
    EXPECT_LE(curve.retry_after, milliseconds(500)) << "more than the backlog";
  }
}

// What is admitted while the machine happens to be fast must be in time as well. Swings that are
// shorter than the wait in the queue, and longer ones: an H200's host gave 58 images each quarter
// of a second, then 34 for a second or two.
TEST(Overload, WhatIsLetInIsInTimeWhereTheMachineSwings) {
  for (const auto& [spell, swing] :
       {std::pair(milliseconds(40), 0.4), std::pair(milliseconds(300), 0.26),
        std::pair(milliseconds(1500), 0.26)}) {
    Machine machine = kMachine;
    machine.spell = spell;
    machine.swing = swing;
    const Curve peak = Offer(0.95, machine);
    for (const double times_capacity : {2.0, 5.0, 10.0}) {
      const Curve curve = Offer(times_capacity, machine);
      EXPECT_GE(curve.goodput, 0.9 * peak.goodput) << spell.count() << " " << times_capacity;
      EXPECT_LE(curve.accepted_late, 0.01) << spell.count() << " " << times_capacity;
    }
  }
}

TEST(Overload, NobodyIsRefusedBelowCapacity) { EXPECT_EQ(Offer(0.8).refused, 0); }

// One client floods with a span of its own in each call; the other asks now and then.
struct Served {
  double share = 0, median = 0;
};

Served BesideAFlood(bool flooded, const ClientKey& flooder, const ClientKey& modest) {
  std::vector<Call> calls = Stream(20, 10, {.deadline = kDeadline, .client = modest}, 11);
  if (flooded) {
    std::vector<Call> flood =
        Stream(3000, 10, {.deadline = milliseconds(30000), .client = flooder});
    for (size_t i = 0; i < flood.size(); ++i) flood[i].span = 1 + 1e-4 * static_cast<double>(i + 1);
    calls = Together(std::move(calls), flood);
  }
  Simulation simulation(kMachine);
  const std::vector<Simulation::Outcome> outcomes = simulation.Run(calls);
  std::vector<double> seconds;
  double asked = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].client != modest) continue;
    ++asked;
    if (outcomes[i].status.ok()) seconds.push_back(outcomes[i].seconds);
  }
  std::ranges::sort(seconds);
  return {.share = static_cast<double>(seconds.size()) / asked,
          .median = seconds.empty() ? 1e9 : seconds[seconds.size() / 2]};
}

TEST(Fairness, AFloodOfOtherPlansLeavesTheOtherClientItsShare) {
  const ClientKey flooder{.peer = "10.0.0.1"}, modest{.peer = "10.0.0.2"};
  const Served alone = BesideAFlood(false, flooder, modest);
  const Served beside = BesideAFlood(true, flooder, modest);
  EXPECT_EQ(alone.share, 1);
  EXPECT_GE(beside.share, 0.95);
  EXPECT_LE(beside.median, 5 * alone.median);
}

TEST(Fairness, NamesDivideTheShareOfTheirPeer) {
  const ClientKey flooder{.peer = "10.0.0.1", .name = "a"}, modest{.peer = "10.0.0.1", .name = "b"};
  const Served alone = BesideAFlood(false, flooder, modest);
  const Served beside = BesideAFlood(true, flooder, modest);
  EXPECT_GE(beside.share, 0.95);
  EXPECT_LE(beside.median, 5 * alone.median);
}

}  // namespace
}  // namespace hyperserve
