// Converts between the tensors of the wire and HostTensor, for users of the client library. Copies
// the data. Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

// The same dtype, shape and bytes. Never fails: every Dtype has its name on the wire.
v1::Tensor ToWire(const TensorView& tensor);
v1::Tensor ToWire(const HostTensor& tensor);

// kInternal where dtype, shape and bytes of a reply do not fit together.
absl::StatusOr<HostTensor> FromWire(const v1::Tensor& tensor);

}  // namespace hyperserve
