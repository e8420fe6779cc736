// Numbers of a row, one double each: plain loops on the host, kernels of one block a row on CUDA,
// so that no row's number depends on the batch.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "core/ode/space.h"

namespace hyperserve {

// sum_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2 over the row, in double and with the row's own
// tolerances; not finite where a number of the row is not. [B, ...] of one dtype (F32 or F64) and
// device.
PerRow RowErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                       const PerRow& rtol, const PerRow& atol);

// log|det| of each row's matrix M[t][i] = tangents[t, row, i], F64 on the host: Gaussian
// elimination with partial pivoting. -inf where it is singular.
at::Tensor LogAbsDeterminants(const at::Tensor& tangents);

// log of the standard normal density of each row of z.
PerRow LogStandardNormal(const at::Tensor& z);

// Is every number of the row finite?
std::vector<bool> RowsFinite(const at::Tensor& z);

// A tensor of one number a row, like `like` in dtype and device. [B]
at::Tensor RowTensor(const PerRow& values, const at::TensorOptions& like);
PerRow RowValues(const at::Tensor& tensor);

}  // namespace hyperserve
