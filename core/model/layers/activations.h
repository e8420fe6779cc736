// Entries of the layer table: activations, functions of one number each.
// core/model/net/activations.h computes them and their slopes.
#pragma once

#include <algorithm>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// A kind's name as a template parameter.
template <size_t size>
struct KindName {
  constexpr KindName(const char (&name)[size]) { std::copy_n(name, size, text); }  // NOLINT
  char text[size];
};

// An activation without fields in JSON.
template <KindName name, RowRule rule>
struct Activation : Elementwise<rule> {
  static constexpr std::string_view kName = name.text;
  static void Fields(auto&) {}
};

using TanhLayer = Activation<"tanh", RowRule::kVectors>;
using SigmoidLayer = Activation<"sigmoid", RowRule::kVectors>;
using SinLayer = Activation<"sin", RowRule::kVectors>;
using ReluLayer = Activation<"relu", RowRule::kAny>;
using SiluLayer = Activation<"silu", RowRule::kVectors>;  // a sigmoid(a)
using SeluLayer = Activation<"selu", RowRule::kVectors>;  // Klambauer et al. 2017: a scaled elu

// log(1 + e^(beta a)) / beta.
struct SoftplusLayer : Elementwise<RowRule::kVectors> {
  static constexpr std::string_view kName = "softplus";
  double beta = 1.0;
  static void Fields(auto& visit) { visit("beta", &SoftplusLayer::beta, kSharpnessRange); }
};

// a where a > 0, else alpha (e^a - 1).
struct EluLayer : Elementwise<RowRule::kVectors> {
  static constexpr std::string_view kName = "elu";
  double alpha = 1.0;
  static void Fields(auto& visit) { visit("alpha", &EluLayer::alpha, kSlopeRange); }
};

// a where a > 0, else negative_slope a.
struct LeakyReluLayer : Elementwise<RowRule::kAny> {
  static constexpr std::string_view kName = "leaky_relu";
  double negative_slope = 0.01;
  static void Fields(auto& visit) {
    visit("negative_slope", &LeakyReluLayer::negative_slope, kSlopeRange);
  }
};

// The nearest number of [low, high]. Refuses low > high; equal ends give a constant.
struct ClampLayer {
  static constexpr std::string_view kName = "clamp";
  static constexpr RowRule kRows = RowRule::kAny;
  double low = -1.0, high = 1.0;

  static void Fields(auto& visit) {
    visit("low", &ClampLayer::low, kSlopeRange);
    visit("high", &ClampLayer::high, kSlopeRange);
  }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    if (low <= high) return input;
    return absl::InvalidArgumentError(absl::StrCat("low ", low, " is above high ", high));
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// a Phi(a), with Phi by erf or by its approximation with tanh.
enum class GeluForm { kNone, kTanh };
// `approximate` is spelled as PyTorch spells it.
struct GeluLayer : Elementwise<RowRule::kVectors> {
  static constexpr std::string_view kName = "gelu";
  static constexpr std::array<std::string_view, 2> kForms = {"none", "tanh"};
  GeluForm approximate = GeluForm::kNone;
  static void Fields(auto& visit) { visit("approximate", &GeluLayer::approximate, kForms); }
};

// a where a > 0, else slope a. `slopes` is 1 (one slope for all channels) or the number of
// channels; weight [slopes]. Refuses rows whose first dimension is not `slopes`, unless that is 1.
// The slopes begin at 0.25, as PyTorch's.
struct PreluLayer {
  static constexpr std::string_view kName = "prelu";
  static constexpr RowRule kRows = RowRule::kAny;
  int64_t slopes = 1;

  static void Fields(auto& visit) { visit("slopes", &PreluLayer::slopes, kChannelRange); }
  absl::StatusOr<Shape> Output(const Shape& input) const {
    return slopes == 1 ? absl::StatusOr<Shape>(input) : SameShape(input, slopes);
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const {
    return {{.role = TensorRole::kWeight, .shape = {slopes}, .start = {0.25}}};
  }
};

}  // namespace hyperserve
