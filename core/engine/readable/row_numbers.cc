#include "core/engine/readable/row_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <span>
#include <tuple>

#include "core/engine/device.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class Number>
PerRow HostErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                        const PerRow& rtol, const PerRow& atol) {
  const at::Tensor e = error.contiguous(), a = z0.contiguous(), b = z1.contiguous();
  const int64_t rows = e.size(0), elements = e.numel() / rows;
  const Number* pe = e.const_data_ptr<Number>();
  const Number* pa = a.const_data_ptr<Number>();
  const Number* pb = b.const_data_ptr<Number>();
  PerRow squares(static_cast<size_t>(rows), 0.0);
  for (size_t row = 0; row < squares.size(); ++row) {
    for (int64_t i = 0; i < elements; ++i) {
      const double from = std::abs(static_cast<double>(*pa++));
      const double to = std::abs(static_cast<double>(*pb++));
      const double e = static_cast<double>(*pe++);
      const double scaled = e / (atol[row] + rtol[row] * std::max(from, to));
      // An infinite state would make any error look small.
      const bool finite = std::isfinite(from) && std::isfinite(to) && std::isfinite(e);
      squares[row] += finite ? scaled * scaled : kNaN;
    }
  }
  return squares;
}

// By Gaussian elimination with partial pivoting, which overwrites the matrix.
double LogAbsDeterminant(std::span<double> matrix, const int64_t n) {
  const auto at = [&](int64_t row, int64_t column) -> double& {
    return matrix[static_cast<size_t>(row * n + column)];
  };
  double log_det = 0.0;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t row = k + 1; row < n; ++row) {
      if (std::abs(at(row, k)) > std::abs(at(pivot, k))) pivot = row;
    }
    for (int64_t column = k; column < n && pivot != k; ++column) {
      std::swap(at(k, column), at(pivot, column));
    }
    log_det += std::log(std::abs(at(k, k)));
    for (int64_t row = k + 1; row < n; ++row) {
      const double factor = at(row, k) / at(k, k);
      for (int64_t column = k; column < n; ++column) at(row, column) -= factor * at(k, column);
    }
    // The column was zero or not finite, and so is the result.
    if (!std::isfinite(log_det)) return log_det;
  }
  return log_det;
}

at::Tensor HostDoubles(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble).contiguous();
}

}  // namespace

PerRow RowErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                       const PerRow& rtol, const PerRow& atol) {
  if (error.is_cuda()) {
    PerRow tolerances = rtol;
    tolerances.insert(tolerances.end(), atol.begin(), atol.end());
    const auto doubles = error.options().dtype(at::kDouble);
    return RowValues(CudaErrorSquares(error, z0, z1, RowTensor(tolerances, doubles).view({2, -1})));
  }
  return error.scalar_type() == at::kDouble ? HostErrorSquares<double>(error, z0, z1, rtol, atol)
                                            : HostErrorSquares<float>(error, z0, z1, rtol, atol);
}

PerRow RowNorms(PerRow squares, int64_t numbers) {
  for (double& square : squares) square = std::sqrt(square / static_cast<double>(numbers));
  return squares;
}

at::Tensor RowErrorSquares(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                           const at::Tensor& tolerances) {
  if (error.is_cuda()) return CudaErrorSquares(error, z0, z1, tolerances);
  return RowTensor(
      RowErrorSquares(error, z0, z1, RowValues(tolerances[0]), RowValues(tolerances[1])),
      at::TensorOptions(at::kDouble));
}

at::Tensor LogAbsDeterminants(const at::Tensor& tangents) {
  const int64_t n = tangents.size(0), rows = tangents.size(1);
  at::Tensor matrices = HostDoubles(tangents.flatten(2).transpose(0, 1)).clone();
  const std::span<double> numbers(matrices.data_ptr<double>(), static_cast<size_t>(rows * n * n));
  PerRow result(static_cast<size_t>(rows));
  for (size_t row = 0; row < result.size(); ++row) {
    const size_t size = static_cast<size_t>(n * n);
    result[row] = LogAbsDeterminant(numbers.subspan(row * size, size), n);
  }
  const at::Tensor log_det = RowTensor(result, at::TensorOptions(at::kDouble));
  if (!tangents.requires_grad()) return log_det;
  // The tangents less themselves are zeros, whose derivative is that of the tangents.
  const at::Tensor of_rows = tangents.flatten(2).transpose(0, 1).to(at::kDouble);
  const at::Tensor slopes =
      std::get<0>(at::linalg_inv_ex(of_rows.detach())).transpose(1, 2).to(at::kCPU);
  return log_det + ((of_rows - of_rows.detach()).to(at::kCPU) * slopes).sum({1, 2});
}

PerRow LogStandardNormal(const at::Tensor& z) {
  const at::Tensor host = HostDoubles(z).flatten(1);
  const int64_t dimensions = host.size(1);
  const double* number = host.const_data_ptr<double>();
  PerRow result(static_cast<size_t>(host.size(0)));
  for (double& log_density : result) {
    double squares = 0.0;
    for (int64_t i = 0; i < dimensions; ++i, ++number) squares += *number * *number;
    log_density =
        -0.5 * (squares + static_cast<double>(dimensions) * std::log(2.0 * std::numbers::pi));
  }
  return result;
}

std::vector<bool> RowsFinite(const at::Tensor& z) {
  const at::Tensor finite = at::isfinite(z.detach()).flatten(1).all(1).to(at::kCPU).contiguous();
  const bool* begin = finite.const_data_ptr<bool>();
  return std::vector<bool>(begin, begin + finite.numel());
}

at::Tensor OverRows(const at::Tensor& per_row, const at::Tensor& x, const int64_t row_dim) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(row_dim)] = per_row.size(0);
  return per_row.view(shape);
}

at::Tensor RowTensor(const PerRow& values, const at::TensorOptions& like) {
  at::Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::memcpy(host.data_ptr<double>(), values.data(), values.size() * sizeof(double));
  // The driver has read pageable memory when the call returns.
  return host.to(like.device(), c10::typeMetaToScalarType(like.dtype()), /*non_blocking=*/true);
}

PerRow RowValues(const at::Tensor& tensor) {
  const at::Tensor host = HostDoubles(tensor);
  const double* begin = host.const_data_ptr<double>();
  return PerRow(begin, begin + host.numel());
}

}  // namespace hyperserve
