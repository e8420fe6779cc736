#include "core/ode/solver_table.h"

#include <algorithm>

#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

using Weights = std::vector<double>;  // of the slopes k_0, k_1, ...; missing ones are 0

// Builds a table row by row. Each x is x_0 plus weighted slopes.
class Rows {
 public:
  // The slope at x_0 plus these slopes, at depth s; returns its index.
  size_t Evaluate(const Weights& x, double s) {
    if (!table_.nodes.empty()) Append(x);
    table_.nodes.push_back(s);
    return table_.nodes.size() - 1;
  }
  SolverTable<double> End(const Weights& x) && {
    Append(x);
    return std::move(table_);
  }

 private:
  void Append(Weights x) {
    x.resize(table_.nodes.size());
    table_.state.push_back(1.0);
    table_.slopes.push_back(std::move(x));
  }
  SolverTable<double> table_;
};

void Add(double weight, size_t slope, Weights& x) {
  x.resize(std::max(x.size(), slope + 1));
  x[slope] += weight;
}

SolverTable<double> OneStepTable(const FixedPlan& plan, double s0, double s1) {
  const Tableau tableau = TableauFor(plan.method);
  const auto depth = [&](int step) {
    return s0 + (s1 - s0) * ShareAt(plan.grid, step, plan.steps);
  };
  Rows rows;
  Weights z;
  for (int step = 0; step < plan.steps; ++step) {
    const bool equal = plan.grid.uniform();
    const double s = equal ? s0 + (s1 - s0) * step / plan.steps : depth(step);
    const double eps = equal ? (s1 - s0) / plan.steps : depth(step + 1) - s;
    std::vector<size_t> slopes;
    for (int i = 0; i < tableau.solution_stages(); ++i) {
      Weights x = z;
      for (size_t j = 0; j < slopes.size(); ++j) Add(eps * tableau.a[i][j], slopes[j], x);
      slopes.push_back(rows.Evaluate(x, std::min(s + tableau.c[i] * eps, s1)));
    }
    for (size_t j = 0; j < slopes.size(); ++j) Add(eps * tableau.b[j], slopes[j], z);
  }
  return std::move(rows).End(z);
}

// z_{k+1} = z_k + eps (3/2 f_k - 1/2 f_{k-1}); the first step is one of midpoint.
SolverTable<double> Ab2Table(const FixedPlan& plan, double s0, double s1) {
  const double eps = (s1 - s0) / plan.steps;
  Rows rows;
  size_t before = rows.Evaluate({}, s0);
  Weights z, middle;
  Add(eps / 2, before, middle);
  Add(eps, rows.Evaluate(middle, s0 + eps / 2), z);
  for (int step = 1; step < plan.steps; ++step) {
    const size_t now = rows.Evaluate(z, s0 + (s1 - s0) * step / plan.steps);
    Add(1.5 * eps, now, z);
    Add(-0.5 * eps, before, z);
    before = now;
  }
  return std::move(rows).End(z);
}

}  // namespace

SolverTable<double> ClassicalTable(const FixedPlan& plan, double s0, double s1) {
  return plan.method.method == Method::kAb2 ? Ab2Table(plan, s0, s1) : OneStepTable(plan, s0, s1);
}

}  // namespace hyperserve
