// What a correction is fitted to: one batch of true solutions, and from it, for each K, the
// residuals along the trajectories.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <vector>

#include "core/engine/readable/tensor_space.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"
#include "training/data/random.h"

namespace hyperserve {

// The depths k/K of the span for all of these K, ascending, both ends included, each once.
std::vector<double> Depths(const std::vector<int>& step_counts, const std::array<double, 2>& span);

class TruthBatch {
 public:
  // `states` are the true states at `depths` (of Depths, for every K that is asked for later).
  // `space` is the classical one; nothing here requires a gradient.
  TruthBatch(TensorSpace space, Tableau tableau, std::array<double, 2> span,
             std::vector<double> depths, std::vector<at::Tensor> states);

  // Residuals R of rows drawn among the K intervals of all trajectories, relative to what g of
  // `corrected` says: mean |R - g| / mean |R|, the latter over all intervals of this K.
  at::Tensor ResidualLoss(const TensorSpace& corrected, int steps, int64_t rows,
                          RandomStream& stream);

  // Whole trajectories of K hypersolved steps from drawn rows: the mean over k of
  // mean |z_k - z(s_k)|, relative to the same of the classical method over all rows.
  at::Tensor TrajectoryLoss(const TensorSpace& corrected, int steps, int64_t rows,
                            RandomStream& stream);

 private:
  struct Interval {  // all K * B of them, k major
    PerRow s;
    std::vector<TensorSpace::State> slopes;
    at::Tensor z, residual;
    at::Tensor residual_size;
  };
  const Interval& Intervals(int steps);
  const at::Tensor& StateAt(double depth) const;
  double DepthOf(int k, int steps) const;
  at::Tensor ClassicalErrorSize(int steps);

  TensorSpace space_;
  Tableau tableau_;
  std::array<double, 2> span_;
  std::vector<double> depths_;
  std::vector<at::Tensor> states_;
  std::map<int, Interval> intervals_;           // made when first asked for
  std::map<int, at::Tensor> classical_errors_;  // the same
};

}  // namespace hyperserve
