// Classical plans written as tables, and rows that join and leave a TableSolver.
#include "core/ode/solver_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/space.h"
#include "core/ode/table_solver.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::RowMatrix;
using testing::RowMatrixSpace;

// Coefficients are numbers. A readout, for odd numbers of evaluations: g = sum of all inputs / 10.
class NumberSpace : public RowMatrixSpace {
 public:
  using RowMatrixSpace::RowMatrixSpace;
  using Coefficient = double;

  State Scaled(double c, const State& z) const {
    return Each(z, z, [&](double, double b) { return c * b; });
  }
  State AddScaled(const State& z, double c, const State& k) const {
    return Each(z, k, [&](double a, double b) { return a + c * b; });
  }
  State Shifted(const State& z, double c) const {
    return Each(z, z, [&](double a, double) { return a + c; });
  }
  bool HasReadout(int evaluations) const { return reads_out && evaluations % 2 == 1; }
  State Readout(int, const State& x_0, const State& x_n, std::span<const State> slopes) const {
    State end = AddScaled(AddScaled(x_n, 0.1, x_0), 0.1, x_n);
    for (const State& slope : slopes) end = AddScaled(end, 0.1, slope);
    return end;
  }

  bool reads_out = false;

 private:
  template <class Function>
  static State Each(const State& a, const State& b, const Function& function) {
    State result = a;
    for (size_t i = 0; i < a.values.size(); ++i) {
      result.values[i] = function(a.values[i], b.values[i]);
    }
    return result;
  }
};
static_assert(TableSpace<NumberSpace>);

// A pendulum, without and with a force that depends on the depth, and x' = x cos s.
void Pendulum(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  dz[0] = z[1];
  dz[1] = -std::sin(z[0]) + 0.1 * static_cast<double>(row);
}
void Forced(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  Pendulum(row, s, z, dz);
  dz[1] += std::cos(3 * s);
}
void Cosine(int64_t, double s, std::span<const double> z, std::span<double> dz) {
  for (size_t d = 0; d < z.size(); ++d) dz[d] = z[d] * std::cos(s);
}

RowMatrix Start() { return RowMatrix::Of({{1.0, 0.3}, {-0.5, 2.0}, {0.1, -1.2}}); }

double Distance(const RowMatrix& a, const RowMatrix& b) {
  double distance = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    distance = std::max(distance, std::abs(a.values[i] - b.values[i]));
  }
  return distance;
}

std::vector<FixedPlan> OneStepPlans() {
  std::vector<FixedPlan> plans;
  for (const MethodName& name : kMethodNames) {
    for (const int steps : {1, 2, 3, 4}) {
      const double alpha = name.method == Method::kAlpha ? 0.75 : 0.0;
      plans.push_back({.method = {.method = name.method, .alpha = alpha}, .steps = steps});
    }
  }
  return plans;
}

TEST(SolverTable, EveryOneStepPlanIsATable) {
  for (const auto field : {Pendulum, Forced, Cosine}) {
    const NumberSpace space(field);
    for (const FixedPlan& plan : OneStepPlans()) {
      const auto table = ClassicalTable(plan, 0.5, 2.0);
      EXPECT_EQ(table.evaluations(), plan.steps * TableauFor(plan.method).solution_stages());
      const auto classical = testing::Solve(space,
                                            {.tableau = TableauFor(plan.method),
                                             .control = FixedSteps{.steps = plan.steps},
                                             .s0 = 0.5,
                                             .s1 = 2.0},
                                            Start());
      EXPECT_LT(Distance(SolveByTable(space, table, Start()), classical.state), 2e-14)
          << PrintPlan({.choice = plan});
    }
  }
}

// The recurrence itself, written once more.
RowMatrix Ab2(const NumberSpace& space, int steps, double s0, double s1) {
  const double eps = (s1 - s0) / steps;
  const auto slope = [&](double s, const RowMatrix& z) { return space.Field(PerRow(3, s), z); };
  RowMatrix before = slope(s0, Start());
  RowMatrix z =
      space.AddScaled(Start(), eps, slope(s0 + eps / 2, space.AddScaled(Start(), eps / 2, before)));
  for (int k = 1; k < steps; ++k) {
    const RowMatrix now = slope(s0 + k * eps, z);
    z = space.AddScaled(space.AddScaled(z, 1.5 * eps, now), -0.5 * eps, before);
    before = now;
  }
  return z;
}

TEST(SolverTable, Ab2IsATable) {
  for (const auto field : {Pendulum, Forced, Cosine}) {
    const NumberSpace space(field);
    for (const int steps : {1, 2, 3, 4, 9}) {
      const FixedPlan plan = {.method = {.method = Method::kAb2}, .steps = steps};
      const auto table = ClassicalTable(plan, 0.5, 2.0);
      EXPECT_EQ(table.evaluations(), steps + 1);
      EXPECT_LT(Distance(SolveByTable(space, table, Start()), Ab2(space, steps, 0.5, 2.0)), 2e-14);
    }
  }
}

TEST(SolverTable, Ab2HasOrderTwo) {
  const NumberSpace space(Cosine);
  const auto error = [&](int steps) {
    const FixedPlan plan = {.method = {.method = Method::kAb2}, .steps = steps};
    const RowMatrix end = SolveByTable(space, ClassicalTable(plan, 0.0, 1.5), Start());
    return std::abs(end.values[0] - std::exp(std::sin(1.5)));
  };
  EXPECT_NEAR(std::log2(error(64) / error(128)), 2.0, 0.1);
}

// x_1 = 2 x_0 + k_0 + 1, x_2 = 3 x_0 + 4 k_0 + 5 k_1 + 2, with k = x: by hand.
TEST(SolverTable, EveryCoefficientHasItsPlace) {
  NumberSpace space(
      [](int64_t, double s, std::span<const double> z, std::span<double> dz) { dz[0] = z[0] + s; });
  SolverTable<double> table{
      .nodes = {0.0, 0.5}, .state = {2, 3}, .slopes = {{1}, {4, 5}}, .offset = {1, 2}};
  const double x_0 = 1, k_0 = x_0, x_1 = 2 * x_0 + k_0 + 1, k_1 = x_1 + 0.5;
  const double x_2 = 3 * x_0 + 4 * k_0 + 5 * k_1 + 2;
  EXPECT_DOUBLE_EQ(SolveByTable(space, table, RowMatrix::Of({{1.0}})).values[0], x_2);
  // The readout sees x_0, x_n and every slope.
  space.reads_out = true;
  table = {.nodes = {0.0}, .state = {2}, .slopes = {{1}}, .offset = {1}};
  EXPECT_DOUBLE_EQ(SolveByTable(space, table, RowMatrix::Of({{1.0}})).values[0],
                   x_1 + 0.1 * (x_0 + x_1 + k_0));
}

// d = 7 z(s1) + 6 x_0 + 4 k_0 + 3 k_1 + 5, beside the same solve.
TEST(SolverTable, TheDistanceReadsTheSameSlopes) {
  const NumberSpace space([](int64_t, double s, std::span<const double> z, std::span<double> dz) {
    for (size_t i = 0; i < z.size(); ++i) dz[i] = z[i] + s;
  });
  SolverTable<double> table{
      .nodes = {0.0, 0.5}, .state = {2, 3}, .slopes = {{1}, {4, 5}}, .offset = {1, 2}};
  const RowMatrix start = RowMatrix::Of({{1.0, -2.0}, {0.5, 3.0}});
  const RowMatrix plain = SolveByTable(space, table, start);
  table.distance = {.end = 7, .state = 6, .slopes = {4, 3}, .offset = 5};
  EXPECT_EQ(SolveByTable(space, table, start).values, plain.values);
  TableSolver<NumberSpace> solver(
      &space, [&](int64_t) { return table; }, 0.0, 1.0);
  const Cohort cohort{.rows = 2, .control = FixedSteps{.steps = 2}};
  solver.Admit(start, {&cohort, 1});
  EXPECT_TRUE(solver.Advance(2));
  const auto result = solver.TakeFinished().at(0);
  EXPECT_EQ(result.state.values, plain.values);
  ASSERT_EQ(result.distance.size(), 2u);
  for (size_t row = 0; row < 2; ++row) {
    double squares = 0, size = 0;
    for (const double x_0 : start.row(row)) {
      const double k_0 = x_0, k_1 = 2 * x_0 + k_0 + 1 + 0.5, z = 3 * x_0 + 4 * k_0 + 5 * k_1 + 2;
      squares += std::pow(7 * z + 6 * x_0 + 4 * k_0 + 3 * k_1 + 5, 2);
      size += z * z;
    }
    EXPECT_NEAR(result.distance[row], std::sqrt(squares / size), 1e-12);
  }
}

// Van der Pol oscillators; every ninth row breaks down half way.
void MixedField(int64_t row, double s, std::span<const double> z, std::span<double> dz) {
  dz[0] = z[1];
  dz[1] = 0.1 * static_cast<double>(row % 20) * (1 - z[0] * z[0]) * z[1] - z[0];
  if (row % 9 == 8) dz[1] += std::sqrt(0.5 - s);
}

RowMatrix StartOf(int64_t row) {
  return {.dims = 2, .values = {2.0 - 0.01 * static_cast<double>(row), 0.3}, .row_ids = {row}};
}

class TableSolverTest : public ::testing::Test {
 protected:
  using Solver = TableSolver<NumberSpace>;
  TableSolverTest() { space_.reads_out = true; }

  Solver Make() const {
    return Solver(
        &space_,
        [](int64_t steps) {
          const FixedPlan plan = {.method = {.method = Method::kAb2},
                                  .steps = static_cast<int>(std::max<int64_t>(steps, 1))};
          if (steps == 0) return SolverTable<double>();
          SolverTable<double> table = ClassicalTable(plan, 0.0, 1.0);
          if (steps % 2 == 0) return table;
          table.distance = {.end = 1, .state = -1, .slopes = {}, .offset = 0.1};
          for (int i = 0; i < table.evaluations(); ++i) table.distance->slopes.push_back(0.1 * i);
          return table;
        },
        0.0, 1.0);
  }
  static int64_t Admit(Solver& solver, int64_t steps, int64_t row) {
    const Cohort cohort{.rows = 1, .control = FixedSteps{.steps = steps}};
    return solver.Admit(StartOf(row), {&cohort, 1});
  }
  std::string Text(const SolveResult<RowMatrix>& result, size_t i) const {
    std::string text;
    const auto row = result.state.row(i);
    text.append(reinterpret_cast<const char*>(row.data()), row.size_bytes());
    const RowCounts& counts = result.counts[i];
    return absl::StrCat(text, " ", static_cast<int>(result.status[i]), " ", result.depth[i], " ",
                        counts.nfe, " ", counts.correction_evaluations, " ", counts.accepted, " ",
                        result.distance.empty() ? 0.0 : result.distance[i]);
  }
  std::string Alone(int64_t steps, int64_t row) const {
    Solver solver = Make();
    Admit(solver, steps, row);
    EXPECT_TRUE(solver.Advance(100));
    return Text(solver.TakeFinished().at(0), 0);
  }

  NumberSpace space_{MixedField};
};

TEST_F(TableSolverTest, ARowIsWhatItIsAloneWheneverItJoins) {
  int64_t compared = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
    Solver solver = Make();
    std::map<int64_t, std::pair<int64_t, int64_t>> asked;  // number -> steps, row
    for (int admissions = 0; admissions < 12 || !solver.done();) {
      if (admissions < 12 && (solver.done() || random() % 3 == 0)) {
        const int64_t steps = below(6), row = below(36);
        asked[Admit(solver, steps, row)] = {steps, row};
        ++admissions;
      }
      if (random() % 12 == 0) {
        const int64_t dropped = below(12);
        solver.Drop(dropped, 1);
        asked.erase(dropped);
      }
      solver.Advance(1 + below(3));
      for (const auto& result : solver.TakeFinished()) {
        for (size_t i = 0; i < result.rows.size(); ++i) {
          const auto found = asked.find(result.rows[i]);
          if (found == asked.end()) continue;  // it ended before it was dropped
          EXPECT_EQ(Text(result, i), Alone(found->second.first, found->second.second));
          asked.erase(found);
          ++compared;
        }
      }
    }
    EXPECT_TRUE(asked.empty()) << asked.size() << " rows were lost, seed " << seed;
  }
  EXPECT_GT(compared, 2000);
}

TEST_F(TableSolverTest, RowsAtDifferentEvaluationsShareThem) {
  Solver solver = Make();
  Admit(solver, 3, 1);  // four evaluations
  EXPECT_FALSE(solver.Advance(2));
  Admit(solver, 1, 2);  // two evaluations, which are the other's last
  EXPECT_FALSE(solver.Advance(1));
  EXPECT_TRUE(solver.Advance(1));
  EXPECT_EQ(solver.TakeFinished().size(), 2u);
}

TEST_F(TableSolverTest, ARowThatBreaksDownKeepsItsStart) {
  Solver solver = Make();
  Admit(solver, 4, 8);
  EXPECT_TRUE(solver.Advance(5));
  const auto result = solver.TakeFinished().at(0);
  EXPECT_EQ(result.status[0], RowStatus::kNonFinite);
  EXPECT_EQ(result.state.values, StartOf(8).values);
  EXPECT_EQ(result.depth[0], 0.0);
  EXPECT_EQ(result.counts[0].accepted, 0);
}

TEST_F(TableSolverTest, WithoutEvaluationsOnlyTheReadoutRuns) {
  Solver solver = Make();
  Admit(solver, 0, 1);
  EXPECT_TRUE(solver.Advance(1));
  EXPECT_EQ(solver.TakeFinished().at(0).counts[0].nfe, 0);
}

}  // namespace
}  // namespace hyperserve
