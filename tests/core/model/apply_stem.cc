// Applies a model's stem, or where it has none its field, to the rows of a file: for programs of
// other languages that compare. In double on the CPU.
//
//   apply_stem FOLDER    model.json and weights.safetensors; rows.safetensors with x [B, ...],
//                        tangents t [T, B, ...] and depth [B]; writes answer.safetensors with y, dy
#include <cstdio>
#include <string>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"

namespace hyperserve {
namespace {

TensorView View(const HostTensor& tensor) {
  return {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes};
}

absl::Status ApplyStem(const std::string& folder) {
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(folder));
  HS_ASSIGN_OR_RETURN(const SafetensorsFile rows,
                      SafetensorsFile::Open(folder + "/rows.safetensors"));
  const auto read = [&](const char* name) {
    return TensorFromView(rows.Find(name).value()).to(at::kDouble);
  };
  const char* prefix = model->spec().stem.empty() ? "field" : "stem";
  const Net net = model->weights().Get(prefix, at::kCPU, at::kDouble);
  const Dual y = net.Apply(Dual{read("x"), read("t")}, Dual{read("depth"), {}});
  const HostTensor value = HostTensorFrom(y.value), tangents = HostTensorFrom(y.tangents);
  return WriteFileAtomically(folder + "/answer.safetensors",
                             SerializeSafetensors({{"y", View(value)}, {"dy", View(tangents)}}));
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  const absl::Status status = argc == 2 ? hyperserve::ApplyStem(argv[1])
                                        : absl::InvalidArgumentError("usage: apply_stem FOLDER");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
