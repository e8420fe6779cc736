// The quantities that training makes small, as differentiable tensor expressions.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace hyperserve {

// Mean over rows of the Euclidean norm of a row; x is [rows, ...].
at::Tensor MeanRowNorm(const at::Tensor& x);

// MeanRowNorm(truth - guess) / size: 1 where the guess is 0 and `size` is that of the truth. Sizes
// are floored, so that an exact base method divides nothing by zero.
at::Tensor RelativeLoss(const at::Tensor& guess, const at::Tensor& truth, const at::Tensor& size);

// Mean of f^2 over all evaluations and all numbers.
at::Tensor SpeedPenalty(const std::vector<at::Tensor>& slopes);

// One evaluation of the field within a step: how far it lies behind the step's first stage.
struct LaterStage {
  double offset;     // c_i eps, not 0
  at::Tensor slope;  // r_i
  at::Tensor first;  // r_1
};
// Mean of |df/ds|^2 along the trajectory, df/ds as the difference quotient of a step's stages:
// (r_i - r_1) / (c_i eps), right to first order in eps.
at::Tensor BendPenalty(const std::vector<LaterStage>& stages);

// Mean over rows of -log p(x) with log p(x) = log N(z1; 0, I) + trace, z1 [rows, D], trace [rows]
// the integral of tr(dF/dz) from data to noise.
at::Tensor NegativeLogLikelihood(const at::Tensor& z1, const at::Tensor& trace);

}  // namespace hyperserve
