// Between the wire's tensors and ours, for programs that use the client library.
#pragma once

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

v1::Tensor ToWire(const TensorView& tensor);
v1::Tensor ToWire(const HostTensor& tensor);

// kInternal where a reply's dtype, shape and bytes do not fit together.
absl::StatusOr<HostTensor> FromWire(const v1::Tensor& tensor);

}  // namespace hyperserve
