// A field of convolutions whose weights lie on a device, ready for solves in one launch each.
// packed_conv_cuda.cc implements it with the fused kernel; tests implement it on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"

namespace hyperserve {

// Immutable; several threads may use one.
class FusedConv {
 public:
  virtual ~FusedConv() = default;

  // False: the weights and planes do not fit in the memory of a multiprocessor.
  virtual bool Fits() const = 0;

  // The rows that the device solves at the same time. Precondition: Fits().
  virtual int64_t RowsAtOnce() const = 0;

  // Of device memory that a solve works in, for ConvRows::scratch.
  virtual int64_t ScratchBytes(const kernels::ConvTask& task) const = 0;

  // Starts a solve on the current stream of the device and does not wait for it. The pointers in
  // `rows` are memory of that device. Throws c10::Error where the launch fails. Precondition:
  // Fits().
  virtual void Solve(const kernels::ConvTask& task, const kernels::ConvRows& rows) const = 0;
};

// Copies the weights of a field to a device. Throws as LibTorch does. Precondition:
// kernels::ConvMisfit(model).empty().
using MakeFusedConv =
    std::function<std::shared_ptr<const FusedConv>(const kernels::ConvModel& model)>;

}  // namespace hyperserve
