#include "core/kernels/flow/flow_twin.h"

#include <cmath>

#include "core/ode/tableau.h"

namespace hyperserve::kernels {
namespace {

using Row = std::vector<double>;

Row Linear(const FlowLayer& layer, const Row& x) {
  Row y(static_cast<size_t>(layer.outputs));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = layer.bias.empty() ? 0.0 : layer.bias[i];
    for (size_t j = 0; j < x.size(); ++j) y[i] += layer.weight[i * x.size() + j] * x[j];
  }
  return y;
}

Row Evaluate(const FlowNet& net, Row x) {
  for (size_t l = 0; l < net.layers.size(); ++l) {
    x = Linear(net.layers[l], x);
    if (l + 1 == net.layers.size()) break;
    const std::vector<float>& slopes = net.layers[l].slopes;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = TwinActivation(net.activation, x[i], slopes.empty() ? 0.0 : slopes[i]);
    }
  }
  return x;
}

struct StepState {
  Row z, z_first;
  std::vector<Row> slopes;
  double s = 0.0, eps = 0.0;
};

Row Correction(const FlowNet& net, const StepState& at) {
  Row x;
  const auto append = [&](const Row& row) { x.insert(x.end(), row.begin(), row.end()); };
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
        x.push_back(at.eps);
        break;
      case FlowInput::kDepth:
        x.push_back(at.s);
        break;
    }
  }
  return Evaluate(net, std::move(x));
}

// base + sum_j factor * weights_j * slopes_j.
Row AddSlopes(Row base, double factor, const StageWeights& weights,
              const std::vector<Row>& slopes) {
  for (size_t j = 0; j < slopes.size(); ++j) {
    for (size_t i = 0; i < base.size(); ++i) base[i] += factor * weights[j] * slopes[j][i];
  }
  return base;
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
  Row x;
  for (const FlowInput input : model.field.inputs) {
    if (input == FlowInput::kState) {
      x.insert(x.end(), z.begin(), z.end());
    } else {
      x.push_back(s);
    }
  }
  return Evaluate(model.field, std::move(x));
}

std::vector<double> TwinSolve(const FlowModel& model, const FlowPlan& plan,
                              std::span<const double> z0) {
  const Tableau& tableau = plan.tableau;
  StepState at{.z = Row(z0.begin(), z0.end()), .z_first = Row(z0.begin(), z0.end()), .slopes = {}};
  at.eps = (plan.s1 - plan.s0) / plan.steps;
  for (int k = 0; k < plan.steps; ++k) {
    at.s = plan.s0 + k * at.eps;
    at.slopes.clear();
    for (size_t i = 0; i < static_cast<size_t>(tableau.solution_stages()); ++i) {
      const Row z = AddSlopes(at.z, at.eps, tableau.a[i], at.slopes);
      const double s = at.s + tableau.c[i] * at.eps;
      Row slope = TwinField(model, plan.against ? plan.s0 + plan.s1 - s : s, z);
      if (plan.against) {
        for (double& value : slope) value = -value;
      }
      at.slopes.push_back(std::move(slope));
    }
    Row next = AddSlopes(at.z, at.eps, tableau.b, at.slopes);
    if (plan.hypersolved) {
      const Row g = Correction(*model.correction, at);
      const double scale = std::pow(at.eps, tableau.order + 1);
      for (size_t i = 0; i < next.size(); ++i) next[i] += scale * g[i];
    }
    at.z = std::move(next);
  }
  return at.z;
}

}  // namespace hyperserve::kernels
