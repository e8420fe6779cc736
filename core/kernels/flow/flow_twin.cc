#include "core/kernels/flow/flow_twin.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

// A number with its derivatives by the tangents.
struct Dual {
  double value = 0.0;
  std::array<double, kFlowTangents> tangents = {};
};

Dual Scaled(double factor, const Dual& x) {
  Dual y{.value = factor * x.value};
  for (size_t t = 0; t < kFlowTangents; ++t) y.tangents[t] = factor * x.tangents[t];
  return y;
}
double Scaled(double factor, double x) { return factor * x; }

Dual Sum(const Dual& x, const Dual& y) {
  Dual sum{.value = x.value + y.value};
  for (size_t t = 0; t < kFlowTangents; ++t) sum.tangents[t] = x.tangents[t] + y.tangents[t];
  return sum;
}
double Sum(double x, double y) { return x + y; }

// The derivative of TwinActivation.
double SlopeOf(FlowActivation activation, double x, double slope) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-x)), tanh = std::tanh(x);
  switch (activation) {
    case FlowActivation::kSoftplus:
      return sigmoid;
    case FlowActivation::kTanh:
      return 1.0 - tanh * tanh;
    case FlowActivation::kSilu:
      return sigmoid * (1.0 + x * (1.0 - sigmoid));
    case FlowActivation::kRectifier:
      return x > 0.0 ? 1.0 : slope;
  }
  return NAN;
}

double Activated(FlowActivation activation, double x, double slope) {
  return TwinActivation(activation, x, slope);
}
Dual Activated(FlowActivation activation, const Dual& x, double slope) {
  Dual y = Scaled(SlopeOf(activation, x.value, slope), x);
  y.value = TwinActivation(activation, x.value, slope);
  return y;
}

// Number: double, or Dual.
template <class Number>
using Row = std::vector<Number>;

template <class Number>
Row<Number> Linear(const FlowLayer& layer, const Row<Number>& x) {
  Row<Number> y(static_cast<size_t>(layer.outputs));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = Number{layer.bias.empty() ? 0.0 : layer.bias[i]};
    for (size_t j = 0; j < x.size(); ++j) {
      y[i] = Sum(y[i], Scaled(layer.weight[i * x.size() + j], x[j]));
    }
  }
  return y;
}

template <class Number>
Row<Number> Evaluate(const FlowNet& net, Row<Number> x) {
  for (size_t l = 0; l < net.layers.size(); ++l) {
    x = Linear(net.layers[l], x);
    if (l + 1 == net.layers.size()) break;
    const std::vector<float>& slopes = net.layers[l].slopes;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = Activated(net.activation, x[i], slopes.empty() ? 0.0 : slopes[i]);
    }
  }
  return x;
}

template <class Number>
Row<Number> Field(const FlowModel& model, double s, const Row<Number>& z) {
  Row<Number> x;
  for (const FlowInput input : model.field.inputs) {
    if (input == FlowInput::kState) {
      x.insert(x.end(), z.begin(), z.end());
    } else {
      x.push_back(Number{s});
    }
  }
  return Evaluate(model.field, std::move(x));
}

Row<Dual> WithUnitTangents(std::span<const double> z) {
  Row<Dual> x(z.size());
  for (size_t i = 0; i < z.size(); ++i) {
    x[i].value = z[i];
    x[i].tangents[i] = 1.0;
  }
  return x;
}

template <class Number>
struct StepState {
  Row<Number> z, z_first;
  std::vector<Row<Number>> slopes;
  double s = 0.0, eps = 0.0;
};

template <class Number>
Row<Number> Correction(const FlowNet& net, const StepState<Number>& at) {
  Row<Number> x;
  const auto append = [&](const Row<Number>& row) { x.insert(x.end(), row.begin(), row.end()); };
  for (const FlowInput input : net.inputs) {
    switch (input) {
      case FlowInput::kState:
        append(at.z);
        break;
      case FlowInput::kSlope1:
        append(at.slopes[0]);
        break;
      case FlowInput::kSlope2:
        append(at.slopes[1]);
        break;
      case FlowInput::kState0:
        append(at.z_first);
        break;
      case FlowInput::kStep:
        x.push_back(Number{at.eps});
        break;
      case FlowInput::kDepth:
        x.push_back(Number{at.s});
        break;
      case FlowInput::kSlopes:
        for (const Row<Number>& slope : at.slopes) append(slope);
        break;
    }
  }
  return Evaluate(net, std::move(x));
}

// base + sum_j factor * weights_j * slopes_j.
template <class Number>
Row<Number> AddSlopes(Row<Number> base, double factor, const StageWeights& weights,
                      const std::vector<Row<Number>>& slopes) {
  for (size_t j = 0; j < slopes.size(); ++j) {
    for (size_t i = 0; i < base.size(); ++i) {
      base[i] = Sum(base[i], Scaled(factor * weights[j], slopes[j][i]));
    }
  }
  return base;
}

double Divergence(const FlowModel& model, double s, const Row<double>& z) {
  const Row<Dual> slope = Field(model, s, WithUnitTangents(z));
  double trace = 0.0;
  for (size_t i = 0; i < slope.size(); ++i) trace += slope[i].tangents[i];
  return trace;
}
double Divergence(const FlowModel&, double, const Row<Dual>&) { return 0.0; }

template <class Number>
struct Solved {
  Row<Number> z;
  double divergence = 0.0;  // its integral, where the plan asks for it and Number is double
};

// The slope of the solve at its depth s.
template <class Number>
Row<Number> SlopeAt(const FlowModel& model, const FlowPlan& plan, double s, const Row<Number>& z) {
  Row<Number> slope = Field(model, plan.against ? plan.s0 + plan.s1 - s : s, z);
  for (Number& value : slope) value = Scaled(plan.against ? -1.0 : 1.0, value);
  return slope;
}

template <class Number>
Row<Number> SolveByTable(const FlowModel& model, const FlowPlan& plan, const Row<Number>& z0) {
  const size_t d = z0.size();
  StepState<Number> at{.z = z0, .z_first = z0, .slopes = {}};
  const float* coefficient = model.table->coefficients.data();
  const auto add_product = [&](const Row<Number>& x) {
    for (size_t i = 0; i < d; ++i) {
      for (size_t j = 0; j < d; ++j) at.z[i] = Sum(at.z[i], Scaled(*coefficient++, x[j]));
    }
  };
  for (size_t i = 0; i < model.table->nodes.size(); ++i) {
    at.slopes.push_back(SlopeAt(model, plan, model.table->nodes[i], at.z));
    for (size_t n = 0; n < d; ++n) at.z[n] = Number{model.table->offset[i * d + n]};
    add_product(z0);
    for (const Row<Number>& slope : at.slopes) add_product(slope);
  }
  if (!model.correction) return at.z;
  const Row<Number> g = Correction(*model.correction, at);
  for (size_t i = 0; i < d; ++i) at.z[i] = Sum(at.z[i], g[i]);
  return at.z;
}

template <class Number>
Solved<Number> Solve(const FlowModel& model, const FlowPlan& plan, Row<Number> z0) {
  if (model.table) return {.z = SolveByTable(model, plan, z0)};
  const Tableau& tableau = plan.tableau;
  const double sign = plan.against ? -1.0 : 1.0;
  StepState<Number> at{.z = z0, .z_first = z0, .slopes = {}};
  at.eps = (plan.s1 - plan.s0) / plan.steps;
  Solved<Number> solved;
  for (int k = 0; k < plan.steps; ++k) {
    at.s = plan.s0 + k * at.eps;
    at.slopes.clear();
    for (size_t i = 0; i < static_cast<size_t>(tableau.solution_stages()); ++i) {
      const Row<Number> z = AddSlopes(at.z, at.eps, tableau.a[i], at.slopes);
      const double s = at.s + tableau.c[i] * at.eps;
      at.slopes.push_back(SlopeAt(model, plan, s, z));
      if (plan.density == FlowDensity::kDivergence) {
        solved.divergence += at.eps * tableau.b[i] * sign *
                             Divergence(model, plan.against ? plan.s0 + plan.s1 - s : s, z);
      }
    }
    Row<Number> next = AddSlopes(at.z, at.eps, tableau.b, at.slopes);
    if (plan.hypersolved) {
      const Row<Number> g = Correction(*model.correction, at);
      const double scale = std::pow(at.eps, tableau.order + 1);
      for (size_t i = 0; i < next.size(); ++i) next[i] = Sum(next[i], Scaled(scale, g[i]));
    }
    at.z = std::move(next);
  }
  solved.z = std::move(at.z);
  return solved;
}

double LogNormal(std::span<const double> z) {
  double sum = 0.0;
  for (const double x : z) sum -= 0.5 * (x * x + std::log(2.0 * std::numbers::pi));
  return sum;
}

double LogDeterminant(const Row<Dual>& z) {
  const auto& a = z.front().tangents;
  const auto& b = z.back().tangents;
  return std::log(std::fabs(z.size() == 1 ? a[0] : a[0] * b[1] - a[1] * b[0]));
}

}  // namespace

double TwinActivation(FlowActivation activation, double x, double slope) {
  switch (activation) {
    case FlowActivation::kSoftplus:
      return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case FlowActivation::kTanh:
      return std::tanh(x);
    case FlowActivation::kSilu:
      return x / (1.0 + std::exp(-x));
    case FlowActivation::kRectifier:
      return x > 0.0 ? x : slope * x;
  }
  return NAN;
}

std::vector<double> TwinField(const FlowModel& model, double s, std::span<const double> z) {
  return Field(model, s, Row<double>(z.begin(), z.end()));
}

std::vector<double> TwinSolve(const FlowModel& model, const FlowPlan& plan,
                              std::span<const double> z0) {
  return Solve(model, plan, Row<double>(z0.begin(), z0.end())).z;
}

double TwinLogDensity(const FlowModel& model, const FlowPlan& plan, std::span<const double> z0) {
  const Solved<double> solved = Solve(model, plan, Row<double>(z0.begin(), z0.end()));
  const double stretch = plan.density == FlowDensity::kDivergence
                             ? solved.divergence
                             : LogDeterminant(Solve(model, plan, WithUnitTangents(z0)).z);
  return plan.to_data ? LogNormal(z0) - stretch : LogNormal(solved.z) + stretch;
}

}  // namespace hyperserve::kernels
