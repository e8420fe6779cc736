#include "core/kernels/conv/conv_twin.h"

#include <algorithm>
#include <cmath>

namespace hyperserve::kernels {
namespace {

using Numbers = std::vector<double>;

// What nets read beside the layer before.
struct Surroundings {
  const Numbers* slope_1 = nullptr;
  const Numbers* slope_2 = nullptr;
  const Numbers* state_0 = nullptr;
  double step = 0.0, depth = 0.0;
};

double Activate(const ConvLayer& layer, size_t output, double x) {
  switch (layer.activation) {
    case ConvActivation::kNone:
      return x;
    case ConvActivation::kSoftplus:
      return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case ConvActivation::kRectifier:
      return x > 0.0 ? x : x * (layer.slopes.empty() ? 0.0 : layer.slopes[output]);
  }
  return x;
}

Numbers InputsOf(const ConvModel& model, const ConvLayer& layer, const Numbers& before,
                 const Surroundings& around) {
  const auto pixels = static_cast<size_t>(model.height) * static_cast<size_t>(model.width);
  Numbers inputs;
  const auto append = [&](const Numbers& some) {
    inputs.insert(inputs.end(), some.begin(), some.end());
  };
  for (const ConvInput input : layer.inputs) {
    if (input == ConvInput::kBefore) append(before);
    if (input == ConvInput::kSlope1) append(*around.slope_1);
    if (input == ConvInput::kSlope2) append(*around.slope_2);
    if (input == ConvInput::kState0) append(*around.state_0);
    if (input == ConvInput::kStep) append(Numbers(pixels, around.step));
    if (input == ConvInput::kDepth) append(Numbers(pixels, around.depth));
  }
  return inputs;
}

// Adds the 3x3 convolution of one channel with one filter.
void AddFiltered(const ConvModel& model, const double* x, const float* filter, double* sum) {
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      const double weight = filter[(dy + 1) * 3 + dx + 1];
      for (int row = std::max(0, -dy); row < std::min(model.height, model.height - dy); ++row) {
        const double* from = x + (row + dy) * model.width + dx;
        double* to = sum + row * model.width;
        const int end = std::min(model.width, model.width - dx);
        for (int column = std::max(0, -dx); column < end; ++column) {
          to[column] += weight * from[column];
        }
      }
    }
  }
}

Numbers Convolve(const ConvModel& model, const ConvLayer& layer, const Numbers& x) {
  const auto pixels = static_cast<size_t>(model.height) * static_cast<size_t>(model.width);
  const size_t inputs = x.size() / pixels, outputs = static_cast<size_t>(layer.outputs);
  Numbers y;
  for (size_t output = 0; output < outputs; ++output) {
    Numbers sum(pixels, layer.bias.empty() ? 0.0 : layer.bias[output]);
    for (size_t input = 0; input < inputs; ++input) {
      AddFiltered(model, x.data() + input * pixels, &layer.weight[(output * inputs + input) * 9],
                  sum.data());
    }
    for (const double one : sum) y.push_back(Activate(layer, output, one));
  }
  return y;
}

Numbers Evaluate(const ConvModel& model, const ConvNet& net, const Numbers& z,
                 const Surroundings& around) {
  Numbers x = z;
  for (const ConvLayer& layer : net) {
    x = Convolve(model, layer, InputsOf(model, layer, x, around));
  }
  return x;
}

// y += scale x
void Add(double scale, const Numbers& x, Numbers& y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += scale * x[i];
}

}  // namespace

std::vector<double> TwinConvField(const ConvModel& model, double s, std::span<const double> z) {
  return Evaluate(model, model.field, Numbers(z.begin(), z.end()), {.depth = s});
}

std::vector<double> TwinConvSolve(const ConvModel& model, const ConvPlan& plan,
                                  std::span<const double> z0) {
  const Numbers state_0(z0.begin(), z0.end());
  const double eps = (plan.s1 - plan.s0) / plan.steps;
  const auto stages = static_cast<size_t>(plan.tableau.solution_stages());
  Numbers z = state_0;
  for (int step = 0; step < plan.steps; ++step) {
    const double s = plan.s0 + step * eps;
    std::vector<Numbers> slopes;
    Numbers next = z;
    for (size_t i = 0; i < stages; ++i) {
      Numbers x = z;
      for (size_t j = 0; j < i; ++j) Add(eps * plan.tableau.a[i][j], slopes[j], x);
      slopes.push_back(TwinConvField(model, s + plan.tableau.c[i] * eps, x));
      Add(eps * plan.tableau.b[i], slopes[i], next);
    }
    if (plan.hypersolved) {
      const Surroundings around{.slope_1 = &slopes[0],
                                .slope_2 = stages > 1 ? &slopes[1] : nullptr,
                                .state_0 = &state_0,
                                .step = eps,
                                .depth = s};
      Add(std::pow(eps, plan.tableau.order + 1), Evaluate(model, *model.correction, z, around),
          next);
    }
    z = next;
  }
  return z;
}

}  // namespace hyperserve::kernels
