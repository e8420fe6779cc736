// The smallest StateSpace: rows of doubles, and a field that is a function of one row. For tests of
// the solvers, where every number must be easy to follow.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/ode/space.h"

namespace hyperserve::testing {

// rows x dims, row-major. `row_ids` follows the rows through Gather, so that a field knows which
// row it gets.
struct RowMatrix {
  int64_t dims = 0;
  std::vector<double> values;
  std::vector<int64_t> row_ids;

  static RowMatrix Of(const std::vector<std::vector<double>>& rows) {
    RowMatrix matrix{.dims = static_cast<int64_t>(rows.empty() ? 0 : rows[0].size())};
    for (size_t i = 0; i < rows.size(); ++i) {
      matrix.values.insert(matrix.values.end(), rows[i].begin(), rows[i].end());
      matrix.row_ids.push_back(static_cast<int64_t>(i));
    }
    return matrix;
  }
  size_t rows() const { return row_ids.size(); }
  std::span<double> row(size_t i) {
    return std::span(values).subspan(i * static_cast<size_t>(dims), static_cast<size_t>(dims));
  }
  std::span<const double> row(size_t i) const {
    return std::span(values).subspan(i * static_cast<size_t>(dims), static_cast<size_t>(dims));
  }
};

// dz = f(row id, s, z).
using RowField =
    std::function<void(int64_t row_id, double s, std::span<const double> z, std::span<double> dz)>;

class RowMatrixSpace {
 public:
  using State = RowMatrix;

  explicit RowMatrixSpace(RowField field) : field_(std::move(field)) {}

  int64_t Rows(const State& z) const { return static_cast<int64_t>(z.rows()); }

  State Field(const PerRow& s, const State& z) const {
    State slope = z;
    for (size_t i = 0; i < z.rows(); ++i) field_(z.row_ids[i], s[i], z.row(i), slope.row(i));
    return slope;
  }

  State Combine(const State& z, std::span<const Term<State>> terms) const {
    State sum = z;
    for (const Term<State>& term : terms) {
      for (size_t i = 0; i < sum.rows(); ++i) {
        const std::span<const double> slope = term.slope->row(i);
        for (size_t d = 0; d < slope.size(); ++d) sum.row(i)[d] += (*term.weights)[i] * slope[d];
      }
    }
    return sum;
  }

  State Minus(const State& a, const State& b) const {
    State difference = a;
    for (size_t i = 0; i < b.values.size(); ++i) difference.values[i] -= b.values[i];
    return difference;
  }

  State Where(const std::vector<bool>& mask, const State& yes, const State& no) const {
    State chosen = no;
    for (size_t i = 0; i < no.rows(); ++i) {
      if (!mask[i]) continue;
      for (size_t d = 0; d < yes.row(i).size(); ++d) chosen.row(i)[d] = yes.row(i)[d];
    }
    return chosen;
  }

  State Gather(const State& z, const std::vector<int64_t>& indices) const {
    State gathered{.dims = z.dims};
    for (const int64_t index : indices) {
      const std::span<const double> row = z.row(static_cast<size_t>(index));
      gathered.values.insert(gathered.values.end(), row.begin(), row.end());
      gathered.row_ids.push_back(z.row_ids[static_cast<size_t>(index)]);
    }
    return gathered;
  }

  State Join(const State& a, const State& b) const {
    State joined = a;
    joined.values.insert(joined.values.end(), b.values.begin(), b.values.end());
    joined.row_ids.insert(joined.row_ids.end(), b.row_ids.begin(), b.row_ids.end());
    return joined;
  }

  std::vector<bool> Finite(const State& z) const {
    std::vector<bool> finite(z.rows(), true);
    for (size_t i = 0; i < z.rows(); ++i) {
      for (const double value : z.row(i)) finite[i] = finite[i] && std::isfinite(value);
    }
    return finite;
  }

  PerRow ErrorNorms(const State& error, const State& z0, const State& z1, const PerRow& rtol,
                    const PerRow& atol) const {
    PerRow norms(z0.rows(), 0.0);
    for (size_t i = 0; i < z0.rows(); ++i) {
      for (size_t d = 0; d < z0.row(i).size(); ++d) {
        const double size = std::max(std::abs(z0.row(i)[d]), std::abs(z1.row(i)[d]));
        const double ratio = error.row(i)[d] / (atol[i] + rtol[i] * size);
        norms[i] += ratio * ratio;
        // max() drops a z1 that is not a number.
        const bool finite = std::isfinite(z0.row(i)[d]) && std::isfinite(z1.row(i)[d]) &&
                            std::isfinite(error.row(i)[d]);
        if (!finite) norms[i] = NAN;
      }
      norms[i] = std::sqrt(norms[i] / static_cast<double>(z0.dims));
    }
    return norms;
  }

  State Zero(const State& z) const {
    State zero = z;
    zero.values.assign(z.values.size(), 0.0);
    return zero;
  }

  void AfterStep(State& z) const {}

 private:
  RowField field_;
};

// The same with a known g: dz = g(eps, s, z, slopes, z_first) of one row.
class CorrectedRowMatrixSpace : public RowMatrixSpace {
 public:
  struct Inputs {
    double eps, s;
    std::span<const double> z, slope_1, z_first;
  };
  using Net = std::function<void(const Inputs& inputs, std::span<double> g)>;

  CorrectedRowMatrixSpace(RowField field, Net net)
      : RowMatrixSpace(std::move(field)), net_(std::move(net)) {}

  State Correction(const PerRow& eps, const PerRow& s, const State& z,
                   std::span<const State> slopes, const State& z_first) const {
    State g = z;
    for (size_t i = 0; i < z.rows(); ++i) {
      net_({.eps = eps[i],
            .s = s[i],
            .z = z.row(i),
            .slope_1 = slopes[0].row(i),
            .z_first = z_first.row(i)},
           g.row(i));
    }
    return g;
  }

 private:
  Net net_;
};

}  // namespace hyperserve::testing
