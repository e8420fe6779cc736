// The losses and penalties of training, as differentiable tensor expressions. Pure.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace hyperserve {

// Mean over rows of the Euclidean norm of a row; x is [rows, ...].
at::Tensor MeanRowNorm(const at::Tensor& x);

// MeanRowNorm(truth - guess) / size. It is 1 where the guess is 0 and `size` is MeanRowNorm(truth).
// Sizes are at least 1e-12, so that an exact base method causes no division by zero.
at::Tensor RelativeLoss(const at::Tensor& guess, const at::Tensor& truth, const at::Tensor& size);

// Mean of f^2 over all evaluations and all numbers.
at::Tensor SpeedPenalty(const std::vector<at::Tensor>& slopes);

// An evaluation of the field within a step, after the first stage.
struct LaterStage {
  double offset;     // c_i eps, not 0
  at::Tensor slope;  // r_i
  at::Tensor first;  // r_1
};
// Mean of |df/ds|^2 along the trajectory. df/ds is the difference quotient of a step's stages,
// (r_i - r_1) / (c_i eps), which is exact to first order in eps.
at::Tensor BendPenalty(const std::vector<LaterStage>& stages);

// Mean over rows of -log p(x), where log p(x) = log N(z1; 0, I) + trace. z1 is [rows, D]; trace is
// [rows], the integral of tr(dF/dz) from data to noise.
at::Tensor NegativeLogLikelihood(const at::Tensor& z1, const at::Tensor& trace);

}  // namespace hyperserve
