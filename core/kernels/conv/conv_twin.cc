#include "core/kernels/conv/conv_twin.h"

#include <algorithm>
#include <cmath>

#include "core/ode/controller.h"
#include "core/ode/tableau.h"

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
    case ConvActivation::kTanh:
      return std::tanh(x);
    case ConvActivation::kSilu:
      return x / (1.0 + std::exp(-x));
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
  const ptrdiff_t width = model.width;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      const double weight = filter[(dy + 1) * 3 + dx + 1];
      for (int row = std::max(0, -dy); row < std::min(model.height, model.height - dy); ++row) {
        const double* from = x + (row + dy) * width + dx;
        double* to = sum + row * width;
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

// y += map x, at every pixel.
void AddMapped(int channels, const float* map, const Numbers& x, Numbers& y) {
  const auto rows = static_cast<size_t>(channels);
  const size_t pixels = x.size() / rows;
  for (size_t to = 0; to < rows; ++to) {
    for (size_t from = 0; from < rows; ++from) {
      for (size_t i = 0; i < pixels; ++i) {
        y[to * pixels + i] += map[to * rows + from] * x[from * pixels + i];
      }
    }
  }
}

// What a readout reads, one after the other.
Numbers ReadoutInputs(const ConvReadout& readout, const Numbers& first, const Numbers& last,
                      const std::vector<Numbers>& slopes) {
  Numbers inputs;
  const auto append = [&](const Numbers& some) {
    inputs.insert(inputs.end(), some.begin(), some.end());
  };
  for (const ConvInput input : readout.inputs) {
    if (input == ConvInput::kState0) append(first);
    if (input == ConvInput::kBefore) append(last);
    if (input == ConvInput::kSlopes) std::ranges::for_each(slopes, append);
  }
  return inputs;
}

// Where the pixel of the state stands that is part `i` of a pixel of the net; i goes over channels,
// then over rows and columns of a part.
size_t PartOf(const ConvModel& net, int scale, size_t i, size_t pixel) {
  const auto width = static_cast<size_t>(net.width), side = static_cast<size_t>(scale);
  const size_t pixels = static_cast<size_t>(net.height) * width, parts = side * side;
  const size_t row = side * (pixel / width) + i % parts / side;
  const size_t column = side * (pixel % width) + i % side;
  return i / parts * parts * pixels + row * side * width + column;
}

// The first convolution with silu.
Numbers Down(const ConvModel& net, const ConvReadout& readout, const Numbers& x) {
  const auto pixels = static_cast<size_t>(net.height) * static_cast<size_t>(net.width);
  const size_t inputs = x.size() / pixels;
  const ConvLayer silu{.inputs = {}, .activation = ConvActivation::kSilu};
  Numbers y;
  for (size_t output = 0; output < readout.down_bias.size(); ++output) {
    for (size_t pixel = 0; pixel < pixels; ++pixel) {
      double sum = readout.down_bias[output];
      for (size_t i = 0; i < inputs; ++i) {
        sum += readout.down[output * inputs + i] * x[PartOf(net, readout.scale, i, pixel)];
      }
      y.push_back(Activate(silu, output, sum));
    }
  }
  return y;
}

// y += the transpose of such a convolution of h.
void AddUp(const ConvModel& net, const ConvReadout& readout, const Numbers& h, Numbers& y) {
  const auto pixels = static_cast<size_t>(net.height) * static_cast<size_t>(net.width);
  const size_t hidden = h.size() / pixels;
  for (size_t i = 0; i < readout.up_bias.size(); ++i) {  // channel, row, column
    for (size_t pixel = 0; pixel < pixels; ++pixel) {
      double sum = readout.up_bias[i];
      for (size_t k = 0; k < hidden; ++k) sum += readout.up[i * hidden + k] * h[k * pixels + pixel];
      y[PartOf(net, readout.scale, i, pixel)] += sum;
    }
  }
}

// x_n in pull form, with the readout's value.
Numbers SolveByTable(const ConvModel& model, const ConvTable& table, const Numbers& first) {
  const auto channels = static_cast<size_t>(model.channels);
  const size_t pixels = first.size() / channels;
  const float* map = table.coefficients.data();
  std::vector<Numbers> slopes;
  Numbers x = first;
  for (int i = 0; i < table.evaluations(); ++i) {
    slopes.push_back(TwinConvField(model, table.nodes[static_cast<size_t>(i)], x));
    const float* offset = table.offset.data() + static_cast<size_t>(i) * channels;
    for (size_t k = 0; k < x.size(); ++k) x[k] = offset[k / pixels];
    AddMapped(model.channels, map, first, x);
    map += channels * channels;
    for (const Numbers& slope : slopes) {
      AddMapped(model.channels, map, slope, x);
      map += channels * channels;
    }
  }
  if (!model.readout) return x;
  const ConvReadout& readout = *model.readout;
  const ConvModel net{.channels = readout.hidden,
                      .height = model.height / readout.scale,
                      .width = model.width / readout.scale};
  const Numbers h = Down(net, readout, ReadoutInputs(readout, first, x, slopes));
  AddUp(net, readout, Evaluate(net, readout.middle, h, {}), x);
  return x;
}

// The norm of error control of `error`, beside the states a and b.
double NormOf(const ConvAdaptivePlan& plan, const Numbers& error, const Numbers& a,
              const Numbers& b) {
  double sum = 0.0;
  for (size_t i = 0; i < error.size(); ++i) {
    const double largest = std::fmax(std::fabs(a[i]), std::fabs(b[i]));
    sum += std::pow(error[i] / (plan.atol + plan.rtol * largest), 2.0);
  }
  return std::sqrt(sum / static_cast<double>(error.size()));
}

double FirstStepOf(const ConvModel& model, const ConvAdaptivePlan& plan, const Numbers& z,
                   const Numbers& slope) {
  const double span = plan.s1 - plan.s0, slope_norm = NormOf(plan, slope, z, z);
  const double guess = FirstStepGuess(NormOf(plan, z, z, z), slope_norm, span);
  Numbers probe = z;
  Add(guess, slope, probe);
  Numbers change = TwinConvField(model, plan.s0 + guess, probe);
  Add(-1.0, slope, change);
  return FirstStep(guess, slope_norm, NormOf(plan, change, z, z) / guess,
                   plan.tableau.embedded_order, span);
}

}  // namespace

std::vector<double> TwinConvField(const ConvModel& model, double s, std::span<const double> z) {
  return Evaluate(model, model.field, Numbers(z.begin(), z.end()), {.depth = s});
}

std::vector<double> TwinConvSolve(const ConvModel& model, const ConvPlan& plan,
                                  std::span<const double> z0) {
  const Numbers state_0(z0.begin(), z0.end());
  if (model.table) return SolveByTable(model, *model.table, state_0);
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

TwinConvEnd TwinConvSolve(const ConvModel& model, const ConvAdaptivePlan& plan,
                          std::span<const double> z0) {
  const Tableau& tableau = plan.tableau;
  const auto stages = static_cast<size_t>(tableau.stages());
  TwinConvEnd end{.z = Numbers(z0.begin(), z0.end()), .evaluations = 2};
  std::vector<Numbers> slopes = {TwinConvField(model, plan.s0, end.z)};
  double s = plan.s0, eps = FirstStepOf(model, plan, end.z, slopes[0]);
  StepController controller(tableau.embedded_order);
  while (s < plan.s1) {
    const NextStep step = ClampStep(s, eps, plan.s1);
    Numbers x;
    slopes.resize(1);
    for (size_t i = 1; i < stages; ++i) {
      x = end.z;
      for (size_t j = 0; j < i; ++j) Add(step.eps * tableau.a[i][j], slopes[j], x);
      slopes.push_back(TwinConvField(model, s + tableau.c[i] * step.eps, x));
      ++end.evaluations;
    }
    Numbers error(x.size());
    for (size_t j = 0; j < stages; ++j) Add(step.eps * tableau.error[j], slopes[j], error);
    const auto decision = controller.Decide(NormOf(plan, error, end.z, x));
    if (decision.accepted) {
      s = step.s_next;
      end.z = x;
      slopes[0] = slopes[stages - 1];
    }
    eps = step.eps * decision.factor;
  }
  return end;
}

}  // namespace hyperserve::kernels
