// The truth that a correction is fitted to: one batch of true solutions and, for each K, the
// residuals along their trajectories.
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

// How much of a span lies before k of K steps, of u = k/K: rises from 0 to 1.
using NodeShare = double (*)(double u);
inline double EqualShare(double u) { return u; }

// The depth after k of K steps. Equal fractions give the same double.
double DepthAt(const std::array<double, 2>& span, int k, int steps, NodeShare share = EqualShare);
// Those for all of these K: ascending, each once, both ends included.
std::vector<double> Depths(const std::vector<int>& step_counts, const std::array<double, 2>& span,
                           NodeShare share = EqualShare);

// `count` row numbers below `rows`, drawn with replacement.
std::vector<int64_t> DrawRows(RandomStream& stream, int64_t rows, int64_t count);
// Row numbers on the device of `like`.
at::Tensor IndexTensor(const std::vector<int64_t>& rows, const at::Tensor& like);

// Not thread-safe: it computes what a K needs when that K is first asked for.
class TruthBatch {
 public:
  // `states` are the true states at `depths`, which come from Depths with every K that is asked for
  // later. `space` is the classical one, `condition` that of each row, undefined where the model
  // has none. None of them requires a gradient.
  TruthBatch(TensorSpace space, Tableau tableau, std::array<double, 2> span,
             std::vector<double> depths, std::vector<at::Tensor> states, at::Tensor condition = {});

  // Computes now what ResidualLoss needs at this K, which it would do at its first call.
  void PrepareResiduals(int steps) { Intervals(steps); }

  // Residual fitting: draws `rows` among the K intervals of all trajectories. The loss is
  // mean |R - g| / mean |R|, where g is the correction of `corrected` and the denominator is over
  // all intervals of this K.
  at::Tensor ResidualLoss(const TensorSpace& corrected, int steps, int64_t rows,
                          RandomStream& stream);

  // Trajectory fitting: K hypersolved steps from `rows` drawn rows. The loss is the mean over k of
  // mean |z_k - z(s_k)|, over the same of the classical method on all rows.
  at::Tensor TrajectoryLoss(const TensorSpace& corrected, int steps, int64_t rows,
                            RandomStream& stream);

 private:
  struct Interval {  // all K * B intervals of one K, k major
    PerRow s;
    std::vector<TensorSpace::State> slopes;
    at::Tensor z, residual;
    at::Tensor residual_size;
  };
  const Interval& Intervals(int steps);
  const at::Tensor& StateAt(double depth) const;
  at::Tensor ConditionsOf(const at::Tensor& rows) const;
  double DepthOf(int k, int steps) const { return DepthAt(span_, k, steps); }
  at::Tensor ClassicalErrorSize(int steps);

  TensorSpace space_;
  Tableau tableau_;
  std::array<double, 2> span_;
  std::vector<double> depths_;
  std::vector<at::Tensor> states_;
  at::Tensor condition_;
  std::map<int, Interval> intervals_;           // by K; computed when first asked for
  std::map<int, at::Tensor> classical_errors_;  // the same
};

}  // namespace hyperserve
