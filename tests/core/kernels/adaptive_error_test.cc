// The flow kernel's error under error control against that of the same solves in float32, on nets
// so smooth that rounding decides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "core/kernels/adaptive/flow_control.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/ode/tableau.h"
#include "tests/core/kernels/flow_fixture.h"

namespace hyperserve::kernels {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kRows = 256;
constexpr double kTolerance = 1e-5;

float ActivationInFloat(FlowActivation activation, float x) {
  if (activation == FlowActivation::kTanh) return std::tanh(x);
  if (activation == FlowActivation::kSilu) return x / (1.0f + std::exp(-x));
  return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

// sign f(s, z) of a field that reads state and depth.
Floats FieldInFloat(const FlowNet& net, float sign, float s, const Floats& z) {
  Floats x = z;
  x.push_back(s);
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const FlowLayer& layer = net.layers[l];
    Floats y(layer.bias);
    for (size_t i = 0; i < y.size(); ++i) {
      float sum = 0.0f;
      for (size_t k = 0; k < x.size(); ++k) {
        sum = std::fma(layer.weight[i * x.size() + k], x[k], sum);
      }
      y[i] += sum;
      if (l + 1 < net.layers.size()) y[i] = ActivationInFloat(net.activation, y[i]);
    }
    x = y;
  }
  for (float& number : x) number *= sign;
  return x;
}

// y + scale sum_j weights_j k_j.
Floats Combined(const Floats& y, float scale, const StageWeights& weights,
                const std::vector<Floats>& k) {
  Floats x = y;
  for (size_t i = 0; i < x.size(); ++i) {
    float sum = 0.0f;
    for (size_t j = 0; j < k.size(); ++j) {
      sum = std::fma(static_cast<float>(weights[j]), k[j][i], sum);
    }
    x[i] = std::fma(scale, sum, x[i]);
  }
  return x;
}

float Norm(const Floats& error, const Floats& a, const Floats& b) {
  constexpr auto kTol = static_cast<float>(kTolerance);
  float sum = 0.0f;
  for (size_t i = 0; i < error.size(); ++i) {
    const float largest = std::fmax(std::fabs(a[i]), std::fabs(b[i]));
    sum += std::pow(error[i] / std::fma(kTol, largest, kTol), 2.0f);
  }
  return std::sqrt(sum / static_cast<float>(error.size()));
}

// A solve of one row in float32.
Floats SolveInFloat(const FlowModel& model, const FlowAdaptivePlan& plan, Floats z) {
  const Tableau& tableau = plan.tableau;
  const auto s0 = static_cast<float>(plan.s0), s1 = static_cast<float>(plan.s1);
  const auto field = [&](float s, const Floats& x) {
    return plan.against ? FieldInFloat(model.field, -1.0f, s0 + s1 - s, x)
                        : FieldInFloat(model.field, 1.0f, s, x);
  };
  std::vector<Floats> k = {field(s0, z)};
  const Floats zeros(z.size());
  const float slope_norm = Norm(k[0], z, z);
  const float guess = FlowFirstGuess(Norm(z, z, z), slope_norm, s1 - s0);
  Floats change = field(s0 + guess, Combined(z, guess, {1.0}, k));
  for (size_t i = 0; i < z.size(); ++i) change[i] -= k[0][i];
  float s = s0, eps = FlowFirstStep(guess, slope_norm, Norm(change, z, z) / guess,
                                    tableau.embedded_order, s1 - s0);
  FlowController controller;
  while (s < s1) {
    const float s_next = FlowNextDepth(s, eps, s1);
    eps = s_next - s;
    k.resize(1);
    Floats x;
    for (size_t i = 1; i < static_cast<size_t>(tableau.stages()); ++i) {
      x = Combined(z, eps, tableau.a[i], k);
      k.push_back(field(std::fma(static_cast<float>(tableau.c[i]), eps, s), x));
    }
    const FlowDecision decision = Decide(Norm(Combined(zeros, eps, tableau.error, k), z, x),
                                         tableau.embedded_order, controller);
    if (decision.accepted) {
      s = s_next;
      z = x;
      k[0] = k.back();
    }
    eps *= decision.factor;
  }
  return z;
}

using AdaptiveErrorTest = FlowTest;

// The error of a row hangs on single decisions about steps, which is worth a third either way in
// the mean of so few; over all nets that evens out.
TEST_F(AdaptiveErrorTest, ItIsThatOfFloat32) {
  double logs = 0.0;
  int nets = 0;
  for (const FlowActivation activation :
       {FlowActivation::kSoftplus, FlowActivation::kTanh, FlowActivation::kSilu}) {
    for (const auto& [dimensions, hidden] :
         {std::pair{1, std::vector{40, 64}}, std::pair{2, std::vector{40, 64}},
          std::pair{8, std::vector{40, 64}}, std::pair{2, std::vector{128, 128, 128}}}) {
      for (const bool against : {false, true}) {
        const FlowModel model = ModelOf(
            {.activation = activation, .dimensions = dimensions, .hidden = hidden, .depth = true});
        const FlowAdaptivePlan plan{.against = against, .rtol = kTolerance, .atol = kTolerance};
        const FlowPlan reference{.tableau = kDopri5Tableau, .steps = 24, .against = against};
        const Floats z0 = Normals(kRows * dimensions, 31);
        const Solved solved = Solve(model, plan, kRows, z0);
        double error = 0.0, of_float = 0.0;
        for (int64_t row = 0; row < kRows; ++row) {
          const auto begin = z0.begin() + row * dimensions;
          const Floats from(begin, begin + dimensions), float32 = SolveInFloat(model, plan, from);
          const std::vector<double> to =
              TwinSolve(model, reference, std::vector<double>(from.begin(), from.end()));
          double squares = 0.0, squares_of_float = 0.0;
          for (size_t i = 0; i < to.size(); ++i) {
            const float fused = solved.z[static_cast<size_t>(row * dimensions) + i];
            squares += std::pow(fused - to[i], 2.0);
            squares_of_float += std::pow(float32[i] - to[i], 2.0);
          }
          error += std::sqrt(squares) / kRows;
          of_float += std::sqrt(squares_of_float) / kRows;
          ASSERT_EQ(solved.unfit[static_cast<size_t>(row)], kRowFits);
        }
        EXPECT_LT(error, 1.5 * of_float);
        logs += std::log(error / of_float);
        ++nets;
        std::printf("  activation %d, %d dimensions, %zu layers, %s: %.3e, of float32 %.3e: %.3f\n",
                    static_cast<int>(activation), dimensions, hidden.size(),
                    against ? "against" : "forward", error, of_float, error / of_float);
      }
    }
  }
  EXPECT_LT(std::exp(logs / nets), 1.1);
}

}  // namespace
}  // namespace hyperserve::kernels
