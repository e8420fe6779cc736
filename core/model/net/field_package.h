// A field that is code: field.pt2, which torch.export and AOTInductor write, run by LibTorch's
// package loader. It is machine code with all rights of this process, so Model loads it only where
// its caller was told to. It computes in float32 on the device that it was compiled for, has no
// derivatives, and nothing is known of how the bits of a row depend on the rows beside it.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/memory_file.h"
#include "core/model/spec/spec.h"

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace hyperserve {

// Thread-safe; as many threads as the machine has cores evaluate at a time, others wait.
class FieldPackage {
 public:
  // Takes the bytes of field.pt2; on the CPU its code is loaded and tried at once, else at the
  // first Apply on a device. `condition` is empty where the model has none. kInvalidArgument: it is
  // no such package, or it was made for another machine, or it does not map rows [B, state...] to
  // rows of that shape for every B.
  static absl::StatusOr<std::shared_ptr<const FieldPackage>> Load(std::string_view bytes,
                                                                  Shape state, Shape condition);
  ~FieldPackage();
  // As Load was told; the package itself does not say.
  bool takes_condition() const { return !condition_.empty(); }

  // f(depth, x) or f(depth, x, condition): x [B, state...], depth [B], condition [B, features], all
  // F32 on one device. Without a gradient, also where x has one. Throws as LibTorch does.
  at::Tensor Apply(const at::Tensor& x, const at::Tensor& depth, const at::Tensor& condition) const;

 private:
  using Loader = torch::inductor::AOTIModelPackageLoader;
  FieldPackage(MemoryFile file, std::string device_type, Shape state, Shape condition);
  // The code on a device. kInvalidArgument as Load.
  absl::StatusOr<Loader*> On(at::Device device) const;
  absl::Status Try(Loader& loader, at::Device device) const;

  const MemoryFile file_;
  const std::string device_type_;  // "cpu", "cuda"
  const Shape state_, condition_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<Loader>> loaders_;  // by device; guarded by mutex_
};

// The field of a model whose file holds these bytes; empty: there is no file. Null where the field
// is one of layers, or is sealed. Fails as Load does, with kInvalidArgument where spec and file
// disagree, and with kFailedPrecondition where the code is refused.
absl::StatusOr<std::shared_ptr<const FieldPackage>> TakeFieldPackage(const ModelSpec& spec,
                                                                     const Shape& state,
                                                                     std::string_view bytes,
                                                                     FieldCode code);

}  // namespace hyperserve
