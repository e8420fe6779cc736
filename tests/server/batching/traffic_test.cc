// Traffic of short and long requests on simulated solvers: no thread and no real time. An
// evaluation of f takes a time of its own and one for each row; the loop decides as it would in the
// daemon.
//
// What batch_rows_max means here: nothing interrupts an evaluation, so a short request waits for
// the rest of one when it comes, and the widest run has the longest. Where requests are as wide as
// runs (8 rows of 8) that is a quarter of the time of one step of rk4, four evaluations. With wider
// runs it is more: batch_rows_max (in the daemon: batch_macs_max) is to be as small as throughput
// allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <vector>

#include "core/plan/method.h"
#include "tests/server/batching/simulation.h"

namespace hyperserve {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

struct Traffic {
  std::vector<Method> methods;
  std::vector<int64_t> rows;
  double one_step_share = 0;  // beside those that K = 1 to 50 brings
  double adaptive_share = 0.2;
  int calls = 6000;
};

// Poisson arrivals at this share of what the bare engine could do, on all solvers.
std::vector<Call> Arrivals(const Traffic& traffic, const Machine& machine, double load) {
  std::mt19937_64 random(7);
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
  std::vector<Call> calls(static_cast<size_t>(traffic.calls));
  double row_evaluations = 0;
  for (Call& call : calls) {
    const double kind = static_cast<double>(between(0, 999)) / 1000;
    call.rows = one_of(traffic.rows);
    call.method = one_of(traffic.methods);
    if (kind < traffic.adaptive_share) {
      call.method = Method::kDopri5;
      call.steps = between(10, kStepsMax);
    } else if (kind >= traffic.adaptive_share + traffic.one_step_share) {
      call.steps = between(1, kStepsMax);
    }
    row_evaluations += call.row_evaluations();
  }
  const double busy = row_evaluations * machine.RowSeconds() / kSolvers;
  std::exponential_distribution<double> gap(traffic.calls * load / busy);
  double at = 0;
  for (Call& call : calls) {
    at += gap(random);
    call.at = nanoseconds(static_cast<int64_t>(at * 1e9));
  }
  return calls;
}

double Percentile99(const std::vector<Simulation::Outcome>& outcomes) {
  std::vector<double> seconds;
  for (const Simulation::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    seconds.push_back(outcome.seconds);
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() * 99 / 100];
}

// Of one-step requests: beside all others, and alone on the same machine at the same times.
struct OneStep {
  double mixed = 0, alone = 0;
  double late = 1;  // when the last answer came, by when the last call did
};

OneStep Measure(const Traffic& traffic, const Machine& machine, double load = 0.9) {
  const std::vector<Call> calls = Arrivals(traffic, machine, load);
  std::vector<Call> one_step;
  std::ranges::copy_if(calls, std::back_inserter(one_step), &Call::one_step);
  Simulation mixed(machine), alone(machine);
  const std::vector<Simulation::Outcome> outcomes = mixed.Run(calls);
  std::vector<Simulation::Outcome> of_one_step;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].one_step()) of_one_step.push_back(outcomes[i]);
  }
  return {.mixed = Percentile99(of_one_step),
          .alone = Percentile99(alone.Run(one_step)),
          .late = std::chrono::duration<double>(mixed.Elapsed()) / calls.back().at};
}

// By the bare engine's, when all calls come at once.
double Goodput(const Traffic& traffic, const Machine& machine) {
  std::vector<Call> calls = Arrivals(traffic, machine, 1);
  double row_evaluations = 0;
  for (Call& call : calls) {
    call.at = nanoseconds(0);
    row_evaluations += call.row_evaluations();
  }
  Simulation simulation(machine);
  simulation.Run(calls);
  const double bare = row_evaluations * machine.RowSeconds() / kSolvers;
  return bare / std::chrono::duration<double>(simulation.Elapsed()).count();
}

const Traffic kOneMethod{.methods = {Method::kRk4}, .rows = {1, 2, 4, 8}, .one_step_share = 0.4};
const Traffic kFourMethods{.methods = {Method::kEuler, Method::kHeun, Method::kRk3, Method::kRk4},
                           .rows = {1, 2, 4, 8},
                           .one_step_share = 0.4};

TEST(Traffic, OneStepRequestsAreHardlySlowerBesideLongOnes) {
  for (const Traffic* traffic : {&kOneMethod, &kFourMethods}) {
    const OneStep p99 = Measure(*traffic, {});
    EXPECT_LE(p99.mixed, 1.3 * p99.alone) << p99.mixed << " s, alone " << p99.alone << " s";
    EXPECT_LE(p99.late, 1.02) << "the solvers do not keep up";
  }
}

TEST(Traffic, TheyWaitForATurnAtMostWhichMayEndWithTheWidestEvaluation) {
  for (const int64_t batch_rows_max : {4, 8, 16}) {
    for (const int64_t rows : {1, 4}) {
      const Machine machine{.batch_rows_max = batch_rows_max};
      const Traffic traffic{
          .methods = {Method::kRk4}, .rows = {rows}, .one_step_share = 0.4, .calls = 3000};
      const OneStep p99 = Measure(traffic, machine);
      const double turn =
          std::chrono::duration<double>(machine.Options().turn_max + machine.TimeOf(batch_rows_max))
              .count();
      EXPECT_LE(p99.mixed - p99.alone, turn)
          << batch_rows_max << ", " << rows << " rows: " << p99.mixed << ", " << p99.alone;
    }
  }
}

TEST(Traffic, ThroughputIsNearTheBareEngines) {
  const Traffic one{.methods = {Method::kRk4}, .rows = {1, 2, 4, 8}, .calls = 1500};
  const Traffic four{.methods = kFourMethods.methods, .rows = {1, 2, 4, 8}, .calls = 1500};
  EXPECT_GE(Goodput(one, {}), 0.95);
  EXPECT_GE(Goodput(four, {}), 0.95);
  // Where an evaluation costs as much as a full run's rows, rows of all lengths share.
  const Machine launches{
      .fixed = microseconds(100), .row = nanoseconds(400), .batch_rows_max = 256};
  const Traffic many{.methods = {Method::kRk4}, .rows = {1, 2, 4, 8}, .calls = 10000};
  EXPECT_GE(Goodput(many, launches), 0.9);
}

}  // namespace
}  // namespace hyperserve
