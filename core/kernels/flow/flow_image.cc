#include "core/kernels/flow/flow_image.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/kernels/flow/flow_fit.h"
#include "core/kernels/flow/flow_twin.h"

namespace hyperserve::kernels {
namespace {

// r of the kernel's rectifier x + r |x|.
float KernelSlope(float slope) { return (1.0f - slope) / (1.0f + slope); }

int InputsOf(const FlowNet& net, size_t layer, int dimensions) {
  return layer == 0 ? FlowInputWidth(net, dimensions) : net.layers[layer - 1].outputs;
}

// The hidden numbers of each layer where all inputs are zero.
std::vector<std::vector<double>> HiddenAtOrigin(const FlowNet& net) {
  std::vector<std::vector<double>> hidden;
  for (size_t l = 0; l + 1 < net.layers.size(); ++l) {
    const FlowLayer& layer = net.layers[l];
    std::vector<double> y(static_cast<size_t>(layer.outputs));
    for (size_t i = 0; i < y.size(); ++i) {
      double sum = layer.bias.empty() ? 0.0 : layer.bias[i];
      const size_t inputs = l == 0 ? 0 : hidden.back().size();
      for (size_t k = 0; k < inputs; ++k) sum += layer.weight[i * inputs + k] * hidden.back()[k];
      y[i] = TwinActivation(net.activation, sum, FlowSlope(layer, i));
    }
    hidden.push_back(std::move(y));
  }
  return hidden;
}

class Packer {
 public:
  Packer(FlowPrecision precision, int dimensions, int width, int outputs)
      : precision_(precision), dimensions_(dimensions), width_(width), outputs_(outputs) {}

  FlowNetLayout Add(const FlowNet& net);
  uint32_t Add(const FlowTable& table);
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  // One weight of a matrix of tiles (mma.cuh), `depths` deep.
  void SetWeight(uint32_t matrix, int depths, int depth, int column, double value) {
    const __half rounded = __double2half(value);
    const int tile = column / 8 * (depths / 8) + depth / 8;
    const int place = tile * kFlowTileBytes + column % 8 * 16 + depth % 8 * 2;
    std::memcpy(bytes_.data() + matrix + place, &rounded, sizeof rounded);
  }
  static double Rounded(double value) { return static_cast<double>(Half(value)); }
  static float Half(double value) { return __half2float(__double2half(value)); }

  uint32_t Reserve(size_t bytes) {
    const size_t offset = bytes_.size();
    bytes_.resize(offset + (bytes + 127) / 128 * 128);
    return static_cast<uint32_t>(offset);
  }
  void Set(uint32_t offset, size_t index, float value) {
    std::memcpy(bytes_.data() + offset + index * sizeof value, &value, sizeof value);
  }
  // Of a matrix `depths` deep.
  uint32_t MatrixBytes(int depths) const { return static_cast<uint32_t>(width_ * depths * 2); }

  void SetBias(uint32_t matrix, int depths, int depth, int step, int column, double bias) {
    SetWeight(matrix, depths, depth, column, bias);
    SetWeight(matrix, depths, depth + step, column, bias - Rounded(bias));
  }

  void AddInputs(const FlowNet& net, FlowNetLayout& layout);
  void AddSlopes(const FlowNet& net, FlowNetLayout& layout);
  void AddFirst(const FlowNet& net, FlowNetLayout& layout);
  void AddSquares(const FlowNet& net, FlowNetLayout& layout);
  void AddExactFirst(const FlowNet& net, FlowNetLayout& layout);
  void AddExactSquares(const FlowNet& net, FlowNetLayout& layout);
  void AddLast(const FlowNet& net, FlowNetLayout& layout);
  void AddExactLast(const FlowNet& net, FlowNetLayout& layout);

  FlowScale ScaleOf(const FlowNet& net, size_t layer, size_t unit) const {
    return FlowScaleOf(precision_, net.activation, net.layers[layer], unit);
  }

  const FlowPrecision precision_;
  const int dimensions_, width_, outputs_;
  std::vector<std::byte> bytes_;
  // Of the first layer's weight, the column of each of a step's four inputs; -1: none.
  std::vector<std::array<int, 4>> columns_;
};

FlowNetLayout Packer::Add(const FlowNet& net) {
  FlowNetLayout layout;
  layout.squares = static_cast<int>(net.layers.size()) - 2;
  layout.input_max = FlowInputMax(net, dimensions_, precision_);
  layout.reads_first_state = std::ranges::count(net.inputs, FlowInput::kState0) > 0;
  AddInputs(net, layout);
  AddSlopes(net, layout);
  if (precision_ == FlowPrecision::kExact) {
    AddExactFirst(net, layout);
    AddExactSquares(net, layout);
    AddExactLast(net, layout);
  } else {
    AddFirst(net, layout);
    AddSquares(net, layout);
    AddLast(net, layout);
  }
  return layout;
}

// The nodes, the offsets, then the coefficients.
uint32_t Packer::Add(const FlowTable& table) {
  std::vector<float> numbers(table.nodes.begin(), table.nodes.end());
  for (const std::vector<float>* part : {&table.offset, &table.coefficients}) {
    numbers.insert(numbers.end(), part->begin(), part->end());
  }
  const uint32_t offset = Reserve(numbers.size() * sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) Set(offset, i, numbers[i]);
  return offset;
}

void Packer::AddInputs(const FlowNet& net, FlowNetLayout& layout) {
  const int halves = (outputs_ + 3) / 4;
  std::vector<int> list;
  std::array<int, 4> constants = {-1, -1, -1, -1};
  // The state comes first, wherever the net lists it, and if it does not.
  columns_.assign(static_cast<size_t>(halves), {-1, -1, -1, -1});
  int column = 0;
  for (const FlowInput input : net.inputs) {
    if (input == FlowInput::kStep || input == FlowInput::kDepth) {
      constants[input == FlowInput::kStep ? 0 : 1] = column++;
      continue;
    }
    const auto add = [&](size_t step) {
      for (int n = 0; n < dimensions_; ++n) columns_[step + n / 4][n % 4] = column++;
    };
    const auto add_slot = [&](int slot) {
      list.push_back(slot);
      columns_.resize(columns_.size() + static_cast<size_t>(halves), {-1, -1, -1, -1});
      add(columns_.size() - static_cast<size_t>(halves));
    };
    if (input == FlowInput::kState) add(0);
    if (input == FlowInput::kState0) add_slot(kSlotState0);
    if (input == FlowInput::kSlope1) add_slot(kSlotSlope1);
    if (input == FlowInput::kSlope2) add_slot(kSlotSlope2);
    if (input != FlowInput::kSlopes) continue;
    for (int j = 0; j < net.slopes; ++j) add_slot(kSlotSlope1 + j);
  }
  if (constants[0] >= 0 || constants[1] >= 0) {
    list.push_back(kSlotConstants);
    columns_.push_back(constants);
    columns_.resize(columns_.size() + static_cast<size_t>(halves) - 1, {-1, -1, -1, -1});
  }
  layout.inputs = static_cast<int>(list.size());
  layout.list = Reserve(list.size() * sizeof list[0]);
  if (!list.empty()) {
    std::memcpy(bytes_.data() + layout.list, list.data(), list.size() * sizeof list[0]);
  }
}

void Packer::AddSlopes(const FlowNet& net, FlowNetLayout& layout) {
  const size_t hidden = net.layers.size() - 1, width = static_cast<size_t>(width_);
  layout.slopes = Reserve(hidden * width * sizeof(float));
  for (size_t l = 0; l < hidden; ++l) {
    const std::vector<float>& slopes = net.layers[l].slopes;
    for (size_t n = 0; n < width; ++n) {
      Set(layout.slopes, l * width + n, KernelSlope(n < slopes.size() ? slopes[n] : 0.0f));
    }
  }
}

// A lane's four depths of a step are x as a high and a low half, twice the high weight, then the
// high half of x again, for the low weight: a product good to 21 bits. The last depth is free; in
// the first step lanes 0 and 1 say one there, for the bias as a high and a low half.
void Packer::AddFirst(const FlowNet& net, FlowNetLayout& layout) {
  const FlowLayer& layer = net.layers.front();
  const size_t inputs = static_cast<size_t>(InputsOf(net, 0, dimensions_));
  const double scale = ScaleOf(net, 0, 0).in;
  layout.first = Reserve(columns_.size() * MatrixBytes(16));
  for (size_t b = 0; b < columns_.size(); ++b) {
    const uint32_t step = layout.first + static_cast<uint32_t>(b) * MatrixBytes(16);
    for (int n = 0; n < layer.outputs; ++n) {
      const float* weights = layer.weight.data() + static_cast<size_t>(n) * inputs;
      for (int q = 0; q < 4; ++q) {
        if (columns_[b][q] < 0) continue;
        const double weight = weights[columns_[b][q]] * scale;
        SetWeight(step, 16, 2 * q, n, weight);
        SetWeight(step, 16, 2 * q + 1, n, weight);
        SetWeight(step, 16, 2 * q + 8, n, weight - Rounded(weight));
      }
      if (b == 0 && !layer.bias.empty()) SetBias(step, 16, 9, 2, n, layer.bias[n] * scale);
    }
  }
}

// After the depths of the layer's inputs, a step whose first two depths are one, for the bias. The
// bias takes up what rounding the weights does at the origin: hidden numbers are far from
// zero on the mean, and with it goes a third of the error.
void Packer::AddSquares(const FlowNet& net, FlowNetLayout& layout) {
  const int depths = width_ + 16;
  const std::vector<std::vector<double>> origin = HiddenAtOrigin(net);
  layout.square = Reserve(static_cast<size_t>(layout.squares) * MatrixBytes(depths));
  for (size_t l = 1; l + 1 < net.layers.size(); ++l) {
    const FlowLayer& layer = net.layers[l];
    const uint32_t matrix = layout.square + static_cast<uint32_t>(l - 1) * MatrixBytes(depths);
    const size_t inputs = static_cast<size_t>(InputsOf(net, l, dimensions_));
    const double in = ScaleOf(net, l, 0).in;
    for (int n = 0; n < layer.outputs; ++n) {
      double bias = layer.bias.empty() ? 0.0 : layer.bias[n] * in;
      for (size_t k = 0; k < inputs; ++k) {
        const double out = ScaleOf(net, l - 1, k).out;
        const double weight = layer.weight[static_cast<size_t>(n) * inputs + k] * in / out;
        SetWeight(matrix, depths, static_cast<int>(k), n, weight);
        bias += (weight - Rounded(weight)) * out * origin[l - 1][k];
      }
      SetBias(matrix, depths, width_, 1, n, bias);
    }
  }
}

void Packer::AddExactFirst(const FlowNet& net, FlowNetLayout& layout) {
  const FlowLayer& layer = net.layers.front();
  const size_t inputs = static_cast<size_t>(InputsOf(net, 0, dimensions_));
  const size_t width = static_cast<size_t>(width_), hidden = net.layers.size() - 1;
  layout.first = Reserve(columns_.size() * 4 * width * sizeof(float));
  for (size_t row = 0; row < 4 * columns_.size(); ++row) {
    const int column = columns_[row / 4][row % 4];
    for (size_t n = 0; column >= 0 && n < static_cast<size_t>(layer.outputs); ++n) {
      Set(layout.first, row * width + n,
          static_cast<float>(layer.weight[n * inputs + static_cast<size_t>(column)] *
                             ScaleOf(net, 0, n).in));
    }
  }
  layout.biases = Reserve(hidden * width * sizeof(float));
  for (size_t l = 0; l < hidden; ++l) {
    for (size_t n = 0; n < net.layers[l].bias.size(); ++n) {
      Set(layout.biases, l * width + n,
          static_cast<float>(net.layers[l].bias[n] * ScaleOf(net, l, n).in));
    }
  }
}

// A power of two brings each square's largest weight near the end of fp16: the low half of a small
// weight would be one of those numbers near zero that have few digits.
void Packer::AddExactSquares(const FlowNet& net, FlowNetLayout& layout) {
  constexpr int kLargest = 13;
  const size_t squares = static_cast<size_t>(layout.squares);
  layout.square = Reserve(squares * MatrixBytes(width_));
  layout.square_low = Reserve(squares * MatrixBytes(width_));
  layout.square_scales = Reserve(squares * sizeof(float));
  for (size_t l = 1; l <= squares; ++l) {
    const FlowLayer& layer = net.layers[l];
    const uint32_t at = static_cast<uint32_t>(l - 1) * MatrixBytes(width_);
    const size_t inputs = static_cast<size_t>(InputsOf(net, l, dimensions_));
    const auto weight = [&](size_t i) {
      return layer.weight[i] * ScaleOf(net, l, 0).in / ScaleOf(net, l - 1, i % inputs).out;
    };
    double largest = 0.0;
    for (size_t i = 0; i < layer.weight.size(); ++i) {
      largest = std::fmax(largest, std::fabs(weight(i)));
    }
    const int exponent = largest > 0.0 ? kLargest - std::ilogb(largest) : 0;
    Set(layout.square_scales, l - 1, static_cast<float>(std::ldexp(1.0, -exponent)));
    for (size_t i = 0; i < layer.weight.size(); ++i) {
      const int depth = static_cast<int>(i % inputs), column = static_cast<int>(i / inputs);
      const double scaled = std::ldexp(weight(i), exponent);
      SetWeight(layout.square + at, width_, depth, column, scaled);
      SetWeight(layout.square_low + at, width_, depth, column, scaled - Rounded(scaled));
    }
  }
}

// The bias adds what the activations before have less than they should.
void Packer::AddLast(const FlowNet& net, FlowNetLayout& layout) {
  const FlowLayer& layer = net.layers.back();
  const size_t before = net.layers.size() - 2;
  const size_t inputs = static_cast<size_t>(net.layers[before].outputs);
  const size_t columns = outputs_ == 2 ? 8 : 2 * kFlowDimensionsMax;
  layout.last = Reserve(columns * static_cast<size_t>(width_) * sizeof(__half));
  layout.last_bias = Reserve(kFlowDimensionsMax * sizeof(float));
  for (int n = 0; n < layer.outputs; ++n) {
    double bias = layer.bias.empty() ? 0.0 : layer.bias[n];
    for (size_t k = 0; k < inputs; ++k) {
      const FlowScale scale = ScaleOf(net, before, k);
      const double weight = layer.weight[static_cast<size_t>(n) * inputs + k] / scale.out;
      SetWeight(layout.last, width_, static_cast<int>(k), 2 * n, weight);
      SetWeight(layout.last, width_, static_cast<int>(k), 2 * n + 1, weight - Rounded(weight));
      bias += weight * scale.shift;
    }
    Set(layout.last_bias, static_cast<size_t>(n), static_cast<float>(bias));
  }
}

// [pair of columns][pair of outputs]: (out 0, column 0), (out 0, column 1), (out 1, column 0), ...
void Packer::AddExactLast(const FlowNet& net, FlowNetLayout& layout) {
  const FlowLayer& layer = net.layers.back();
  const int inputs = InputsOf(net, net.layers.size() - 1, dimensions_);
  layout.last =
      Reserve(static_cast<size_t>(width_) * static_cast<size_t>(outputs_) * sizeof(float));
  layout.last_bias = Reserve(kFlowDimensionsMax * sizeof(float));
  for (int n = 0; n < layer.outputs; ++n) {
    for (int k = 0; k < inputs; ++k) {
      const int at = k / 2 * 2 * outputs_ + n / 2 * 4 + n % 2 * 2 + k % 2;
      const int from = n * inputs + k;
      Set(layout.last, static_cast<size_t>(at),
          static_cast<float>(layer.weight[static_cast<size_t>(from)] /
                             ScaleOf(net, net.layers.size() - 2, k).out));
    }
    if (!layer.bias.empty()) Set(layout.last_bias, static_cast<size_t>(n), layer.bias[n]);
  }
}

}  // namespace

FlowImage PackFlow(const FlowModel& model, FlowPrecision precision) {
  int width = 0;
  const auto widen = [&](const FlowNet& net) {
    for (size_t l = 0; l + 1 < net.layers.size(); ++l)
      width = std::max(width, net.layers[l].outputs);
  };
  widen(model.field);
  if (model.correction) widen(*model.correction);
  FlowImage image;
  FlowLayout& layout = image.layout;
  layout.precision = precision;
  layout.dimensions = model.dimensions;
  layout.width = width <= 64 ? 64 : 128;
  layout.outputs = model.dimensions <= 2 ? 2 : kFlowDimensionsMax;
  layout.activation = model.field.activation;
  Packer packer(precision, layout.dimensions, layout.width, layout.outputs);
  layout.field = packer.Add(model.field);
  layout.corrected = model.correction.has_value();
  if (model.correction) {
    layout.correction_activation = model.correction->activation;
    layout.correction = packer.Add(*model.correction);
  }
  if (model.table) {
    layout.evaluations = model.table->evaluations();
    layout.table = packer.Add(*model.table);
  }
  image.bytes = packer.Take();
  layout.bytes = static_cast<uint32_t>(image.bytes.size());
  return image;
}

}  // namespace hyperserve::kernels
