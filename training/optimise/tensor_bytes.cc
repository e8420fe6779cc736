#include "training/optimise/tensor_bytes.h"

#include <functional>

#include "core/io/tensor.h"
#include "core/model/net/net.h"

namespace hyperserve {

TensorMap TensorsOf(const SafetensorsFile& file) {
  TensorMap tensors;
  for (const auto& [name, view] : file.tensors()) tensors[name] = TensorFromView(view);
  return tensors;
}

std::string SerializeTensors(const TensorMap& tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::map<std::string, HostTensor> host;
  std::map<std::string, TensorView, std::less<>> views;
  for (const auto& [name, tensor] : tensors) {
    host[name] = HostTensorFrom(tensor);
    views[name] = host[name].view();
  }
  return SerializeSafetensors(views, metadata);
}

}  // namespace hyperserve
