// Reads a list of layers into what a kernel takes, layer by layer. What the readers of the flow and
// of the convolution kernel share. Private to core/engine/fused.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/net.h"

namespace hyperserve {

// The numbers of a tensor on the CPU, in float32.
inline std::vector<float> NumbersOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const float* begin = dense.const_data_ptr<float>();
  return {begin, begin + dense.numel()};
}

// One slope for each of a layer's outputs: `slopes` are none, one for all outputs, or one for each.
inline std::vector<float> SlopesOf(std::vector<float> slopes, int outputs) {
  if (slopes.size() == 1) slopes.assign(static_cast<size_t>(outputs), slopes[0]);
  return slopes;
}

// Reader derives from it, says `using NetReader<Reader>::Take` and has a Take for each kind of
// layer that its kernel knows: it returns false where the layer cannot stand there. Used by one
// thread, for one net.
template <class Reader>
class NetReader {
 public:
  // A kind that the kernel does not know. Always false, so that TakeAll names the layer. A derived
  // class that lists no such overload refuses the kind.
  template <class Kind>
  bool Take(const Kind&) {
    return false;
  }

 protected:
  // `tensors` on the CPU, in float32; they must outlive the reader. `who` is the prefix of the
  // net's tensors.
  NetReader(const TensorMap& tensors, std::string who) : tensors_(tensors), who_(std::move(who)) {}

  // kUnimplemented names the first layer that Take refuses.
  absl::Status TakeAll(const LayerList& layers) {
    for (size_t i = 0; i < layers.size(); ++i) {
      name_ = absl::StrCat(who_, ".", i);
      const auto take = [this](const auto& kind) { return static_cast<Reader*>(this)->Take(kind); };
      if (std::visit(take, layers[i].kind)) continue;
      return absl::UnimplementedError(absl::StrCat(name_, ".", Absl(LayerName(layers[i])),
                                                   " is not a layer of the fused kernel here"));
    }
    return absl::OkStatus();
  }

  // Of the layer that is read: a tensor that it has by its kind. Precondition: TakeAll is reading a
  // layer whose kind has this role.
  std::vector<float> LayerNumbers(const char* role) const {
    return NumbersOf(tensors_.find(absl::StrCat(name_, ".", role))->second);
  }
  const std::string& who() const { return who_; }

 private:
  const TensorMap& tensors_;
  const std::string who_;
  std::string name_;  // of the layer that is read
};

}  // namespace hyperserve
