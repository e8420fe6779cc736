#include "core/model/layers/kind.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {

std::string_view TensorRoleName(TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
      return "weight";
    case TensorRole::kBias:
      return "bias";
    case TensorRole::kRunningMean:
      return "running_mean";
    case TensorRole::kRunningVar:
      return "running_var";
    case TensorRole::kInWeight:
      return "in_proj_weight";
    case TensorRole::kInBias:
      return "in_proj_bias";
    case TensorRole::kOutWeight:
      return "out_proj.weight";
    case TensorRole::kOutBias:
      return "out_proj.bias";
  }
  return "";
}

absl::Status Wants(std::string_view what, const Shape& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("wants rows of ", Absl(what), ", found ", ShapeText(found)));
}

absl::StatusOr<Shape> SameShape(const Shape& input, int64_t channels) {
  if (input[0] != channels) return Wants(absl::StrCat("[", channels, ", ...]"), input);
  return input;
}

absl::StatusOr<Shape> WindowShape(const Shape& input, HeightWidth kernel, HeightWidth padding,
                                  int64_t stride) {
  if (input.size() != 3) return Wants("[C, H, W]", input);
  const int64_t height = input[1] + 2 * padding.height - kernel.height;
  const int64_t width = input[2] + 2 * padding.width - kernel.width;
  if (height < 0 || width < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a kernel of ", kernel.height, " x ", kernel.width, " does not fit into ",
                     ShapeText(input), " with padding ", padding.height, " x ", padding.width));
  }
  return Shape{input[0], height / stride + 1, width / stride + 1};
}

absl::Status CheckDivides(std::string_view name, int64_t divisor, std::string_view what,
                          int64_t value) {
  if (value % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(name), " ", divisor, " does not divide ", Absl(what), " ", value));
}

LayerTensors WeightAndBias(const Shape& weight, bool has_bias) {
  const double fan_in = static_cast<double>(*ElementCount(weight) / weight[0]);
  const TensorStart start = {.value = 0.0, .spread = 1.0 / std::sqrt(fan_in)};
  LayerTensors tensors = {{.role = TensorRole::kWeight, .shape = weight, .start = start}};
  if (has_bias) {
    tensors.push_back({.role = TensorRole::kBias, .shape = {weight[0]}, .start = start});
  }
  return tensors;
}

LayerTensors IdentityScale(const Shape& shape) {
  return {{.role = TensorRole::kWeight, .shape = shape, .start = {.value = 1.0}},
          {.role = TensorRole::kBias, .shape = shape, .start = {.value = 0.0}}};
}

}  // namespace hyperserve
