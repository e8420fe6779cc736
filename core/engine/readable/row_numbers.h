// Functions with one double for each row. They are plain loops on the host, or kernels with one
// block for each row on CUDA, so a row's number never depends on the batch. Tensors are [B, ...] of
// F32 or F64 on any device unless said otherwise. All wait for the device and throw as LibTorch
// does. Not differentiable, but for the determinants.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "core/ode/space.h"

namespace hyperserve {

// sum_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2 over each row, in double and with the row's own
// tolerances; NaN where a number of the row is not finite. The three tensors have one shape, dtype
// and device.
PerRow RowErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                       const PerRow& rtol, const PerRow& atol);
// The same numbers, F64 [B] on the device of the error, where the tolerances are: F64 [2, B], rtol
// and atol. Does not wait.
at::Tensor RowErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                           const at::Tensor& tolerances);
// The root of the mean of each row's squares, of so many numbers a row.
PerRow RowNorms(PerRow squares, int64_t numbers);

// log|det| of each row's matrix M[t][i] = tangents[t, row, i], by Gaussian elimination with partial
// pivoting in double; -inf where it is singular. tangents: [T, B, ...] with T numbers in a row. The
// result is F64 [B] on the host. Where the tangents are part of a graph of LibTorch so is the
// result, with its first derivative, M^-T, and no further ones.
at::Tensor LogAbsDeterminants(const at::Tensor& tangents);

// The log-density of each row under the standard normal distribution.
PerRow LogStandardNormal(const at::Tensor& z);

// For each row: is every number finite?
std::vector<bool> RowsFinite(const at::Tensor& z);

// A tensor [B] in a shape that broadcasts over x. The rows of x lie along its dimension `row_dim`.
// Does not wait.
at::Tensor OverRows(const at::Tensor& per_row, const at::Tensor& x, int64_t row_dim);

// A tensor [B] of these numbers, with the dtype and device of `like`; and the way back, from [B].
at::Tensor RowTensor(const PerRow& values, const at::TensorOptions& like);
// Any dtype becomes double. Copies from the device.
PerRow RowValues(const at::Tensor& tensor);

}  // namespace hyperserve
