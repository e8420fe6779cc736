// Entries of the layer table: layers that vary with the depth s or the condition, and embeddings.
// core/model/net/depth.h computes them.
#pragma once

#include <array>
#include <cmath>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// A scale and a shift for each channel, which `layers` make of the depth, one feature [1]
// (film), or of the condition (condition_film): [2 C] numbers, the scales a and then the shifts b.
//   one_plus  y = (1 + a) x + b (FiLM, Perez et al. 2018)
//   sigmoid   y = sigmoid(a) x + b (after a linear or conv2d layer: FFJORD's concat-squash,
//             Grathwohl et al. 2019, where a is affine and b linear in s)
enum class FilmGate { kOnePlus, kSigmoid };
inline constexpr std::array<std::string_view, 2> kFilmGates = {"one_plus", "sigmoid"};
// `input`; kInvalidArgument unless the inner layers give one scale and one shift for each of its
// channels.
inline absl::StatusOr<Shape> FilmShape(const Shape& input, const Shape& inner) {
  if (inner == Shape{2 * input[0]}) return input;
  return absl::InvalidArgumentError(
      absl::StrCat("layers give ", ShapeText(inner), ", not the ", ShapeText({2 * input[0]}),
                   " scales and shifts for the channels of ", ShapeText(input)));
}
// Its layers see the depth alone, never the rows: all rows of one depth get the same scales.
struct FilmLayer {
  static constexpr std::string_view kName = "film";
  static constexpr RowRule kRows = RowRule::kVectors;
  static constexpr bool kReadsDepth = true;
  FilmGate gate = FilmGate::kOnePlus;
  LayerList layers;

  static void Fields(auto& visit) {
    visit("gate", &FilmLayer::gate, kFilmGates);
    visit("layers", &FilmLayer::layers);
  }
  absl::StatusOr<Shape> Join(const Shape& input, const Shape& inner) const {
    return FilmShape(input, inner);
  }
};
// Its layers see the condition of the row alone. `features` must be what the model's condition has
// (CheckCondition).
struct ConditionFilmLayer {
  static constexpr std::string_view kName = "condition_film";
  static constexpr RowRule kRows = RowRule::kVectors;
  static constexpr bool kReadsCondition = true;
  int64_t features = 0;
  FilmGate gate = FilmGate::kOnePlus;
  LayerList layers;

  static void Fields(auto& visit) {
    visit("features", &ConditionFilmLayer::features, kChannelRange);
    visit("gate", &ConditionFilmLayer::gate, kFilmGates);
    visit("layers", &ConditionFilmLayer::layers);
  }
  absl::StatusOr<Shape> Join(const Shape& input, const Shape& inner) const {
    return FilmShape(input, inner);
  }
};

// [1] to [features]; kInvalidArgument where `features` is odd.
inline absl::StatusOr<Shape> CosinesAndSines(const Shape& input, int64_t features) {
  if (features % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("features ", features, " is odd"));
  }
  if (input != Shape{1}) return Wants("[1]", input);
  return Shape{features};
}

// Features of one number t: cos(w_k t) for each frequency, and then sin(w_k t).
//   sinusoidal        w_k = scale max_period^(-k / (features / 2)), k = 0, 1, ... (Vaswani et al.
//                     2017, section 3.5, in the order that diffusion models use)
//   fourier_features  w_k = 2 pi weight_k, learned or drawn once; weight [features / 2] (Tancik et
//                     al. 2020, equation 5)
// It has no tensors. `scale` stretches t, as the factor 1000 of diffusion models does.
struct SinusoidalLayer {
  static constexpr std::string_view kName = "sinusoidal";
  static constexpr RowRule kRows = RowRule::kVectors;
  int64_t features = 0;
  double max_period = 1e4, scale = 1.0;

  static void Fields(auto& visit) {
    visit("features", &SinusoidalLayer::features, kChannelRange);
    visit("max_period", &SinusoidalLayer::max_period, kSharpnessRange);
    visit("scale", &SinusoidalLayer::scale, kSharpnessRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    return CosinesAndSines(input, features);
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};
// Its weight begins uniform within +-4, and training fits it like any other.
struct FourierFeaturesLayer {
  static constexpr std::string_view kName = "fourier_features";
  static constexpr RowRule kRows = RowRule::kVectors;
  int64_t features = 0;

  static void Fields(auto& visit) {
    visit("features", &FourierFeaturesLayer::features, kChannelRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    return CosinesAndSines(input, features);
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const {
    return {{TensorRole::kWeight, {features / 2}, {.value = 0.0, .spread = 4.0}}};
  }
};

// A linear layer whose matrix and bias are sums over functions of the depth: y = sum_k phi_k(s)
// (W_k x + b_k); weight [terms, out, in], bias [terms, out] (Massaroli et al. 2020, "Dissecting
// Neural ODEs", section 3.2).
//   polynomial  phi_k = s^k
//   chebyshev   phi_k = T_k(s), of the first kind
//   fourier     phi = 1, sin(w s), cos(w s), sin(2 w s), ... with w = 2 pi / period
enum class GalerkinBasis { kPolynomial, kChebyshev, kFourier };
// Takes rows [in]. `period` is read by the fourier basis alone. The depth is not scaled: a
// chebyshev basis wants s within [-1, 1] to be of use.
struct GalerkinLinearLayer {
  static constexpr std::string_view kName = "galerkin_linear";
  static constexpr RowRule kRows = RowRule::kMatrix;
  static constexpr bool kReadsDepth = true;
  static constexpr std::array<std::string_view, 3> kBases = {"polynomial", "chebyshev", "fourier"};
  int64_t in = 0, out = 0, terms = 1;
  GalerkinBasis basis = GalerkinBasis::kPolynomial;
  double period = 1.0;
  bool bias = true;

  static void Fields(auto& visit) {
    visit("in", &GalerkinLinearLayer::in, kChannelRange);
    visit("out", &GalerkinLinearLayer::out, kChannelRange);
    visit("terms", &GalerkinLinearLayer::terms, kKernelRange);
    visit("basis", &GalerkinLinearLayer::basis, kBases);
    visit("period", &GalerkinLinearLayer::period, kSharpnessRange);
    visit("bias", &GalerkinLinearLayer::bias);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (input != Shape{in}) return Wants(ShapeText({in}), input);
    return Shape{out};
  }
  int64_t Macs(const Shape&) const { return terms * out * (in + 1); }
  LayerTensors Tensors() const {
    const double fan_in = static_cast<double>(terms * in);
    const TensorStart start = {.value = 0.0, .spread = 1.0 / std::sqrt(fan_in)};
    LayerTensors tensors = {{TensorRole::kWeight, {terms, out, in}, start}};
    if (bias) tensors.push_back({TensorRole::kBias, {terms, out}, start});
    return tensors;
  }
};

}  // namespace hyperserve
