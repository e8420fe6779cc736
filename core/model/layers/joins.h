// Entries of the layer table: layers that concatenate or add to their input. core/model/net/joins.h
// computes them.
#pragma once

#include <algorithm>
#include <vector>

#include "core/io/tensor.h"
#include "core/model/layers/kind.h"

namespace hyperserve {

// Concatenates the depth s as one more feature or channel with the same value everywhere: the last
// one, or the first where `first` is set. Takes any shape with a first dimension, which grows by
// one.
struct DepthCatLayer {
  static constexpr std::string_view kName = "depth_cat";
  static constexpr RowRule kRows = RowRule::kAny;
  static constexpr bool kReadsDepth = true;
  bool first = false;

  static void Fields(auto& visit) { visit("first", &DepthCatLayer::first); }
  absl::StatusOr<Shape> Output(Shape input) const {
    input[0] += 1;
    return input;
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// Concatenates the condition of the row as so many more features, or as channels with the same
// value everywhere: the last ones, or the first where `first` is set. `features` must be what the
// model's condition has (CheckCondition).
struct ConditionCatLayer {
  static constexpr std::string_view kName = "condition_cat";
  static constexpr RowRule kRows = RowRule::kAny;
  static constexpr bool kReadsCondition = true;
  int64_t features = 0;
  bool first = false;

  static void Fields(auto& visit) {
    visit("features", &ConditionCatLayer::features, kChannelRange);
    visit("first", &ConditionCatLayer::first);
  }
  absl::StatusOr<Shape> Output(Shape input) const {
    input[0] += features;
    return input;
  }
  int64_t Macs(const Shape&) const { return 0; }
  LayerTensors Tensors() const { return {}; }
};

// y = cat[layers(x), x] (augment) or cat[x, layers(x)] (skip) along the channels. Refuses inner
// layers that change the number of dimensions, or any but the first.
enum class InputSide { kAfter, kBefore };
template <InputSide side>
struct BesideLayer {
  static constexpr std::string_view kName = side == InputSide::kAfter ? "augment" : "skip";
  static constexpr RowRule kRows = RowRule::kAny;
  LayerList layers;

  static void Fields(auto& visit) { visit("layers", &BesideLayer::layers); }
  absl::StatusOr<Shape> Join(const Shape& input, Shape inner) const {
    if (inner.size() != input.size() ||
        !std::equal(inner.begin() + 1, inner.end(), input.begin() + 1)) {
      return absl::InvalidArgumentError(absl::StrCat("layers give ", ShapeText(inner),
                                                     ", which cannot stand beside their input ",
                                                     ShapeText(input)));
    }
    inner[0] += input[0];
    return inner;
  }
};
using AugmentLayer = BesideLayer<InputSide::kAfter>;
using SkipLayer = BesideLayer<InputSide::kBefore>;

// y = cat over the branches of layers(x), along the channels. A branch without layers is x itself.
// Refuses no branches at all, and branches that differ in more than the first dimension.
struct ParallelLayer {
  static constexpr std::string_view kName = "parallel";
  static constexpr RowRule kRows = RowRule::kAny;
  std::vector<LayerList> branches;

  static void Fields(auto& visit) { visit("branches", &ParallelLayer::branches); }
  absl::StatusOr<Shape> Join(const std::vector<Shape>& inner) const {
    if (inner.empty()) return absl::InvalidArgumentError("branches: at least one is needed");
    Shape output = inner[0];
    for (size_t i = 1; i < inner.size(); ++i) {
      if (inner[i].size() != output.size() ||
          !std::equal(output.begin() + 1, output.end(), inner[i].begin() + 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("branches[", i, "] gives ", ShapeText(inner[i]),
                         ", which cannot stand beside ", ShapeText(inner[0]), " of branches[0]"));
      }
      output[0] += inner[i][0];
    }
    return output;
  }
};

// y = x + layers(x). Refuses inner layers that change the shape.
struct ResidualLayer {
  static constexpr std::string_view kName = "residual";
  static constexpr RowRule kRows = RowRule::kAny;
  LayerList layers;

  static void Fields(auto& visit) { visit("layers", &ResidualLayer::layers); }
  absl::StatusOr<Shape> Join(const Shape& input, const Shape& inner) const {
    if (inner == input) return input;
    return absl::InvalidArgumentError(absl::StrCat("layers give ", ShapeText(inner),
                                                   ", which cannot be added to their input ",
                                                   ShapeText(input)));
  }
};

}  // namespace hyperserve
