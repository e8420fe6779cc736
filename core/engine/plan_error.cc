#include "core/engine/plan_error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "core/base/status.h"
#include "core/engine/batch_spec.h"

namespace hyperserve {
namespace {

template <class T>
double Sum(const std::vector<T>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// |row - exact| / |exact|.
double RelativeError(std::span<const double> row, std::span<const double> exact) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    difference += (row[i] - exact[i]) * (row[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  // The smallest normal float stands for the size of a smaller reference, also of zero.
  return std::sqrt(difference) /
         std::max(std::sqrt(size), double{std::numeric_limits<float>::min()});
}

}  // namespace

absl::StatusOr<Solution> SolveRows(const BatchSpec& spec, const StepPlan& plan,
                                   const Segment& segment, int64_t batch_rows,
                                   const SolveSegment& solve) {
  const int64_t count = segment.rows;
  const auto all = static_cast<double>(count);
  Solution solution;
  for (int64_t first = 0; first < count; first += batch_rows) {
    const int64_t part_rows = std::min(batch_rows, count - first);
    HS_ASSIGN_OR_RETURN(const BatchResult part,
                        solve(spec, plan, RowsOf(segment, first, part_rows)));
    solution.status.insert(solution.status.end(), part.status.begin(), part.status.end());
    AppendRows(part.state.view(), solution.state);
    AppendRows(part.saved.view(), solution.saved);
    AppendRows(part.outputs.view(), solution.outputs);
    AppendRows(part.log_density.view(), solution.log_density);
    solution.distance.insert(solution.distance.end(), part.distance.begin(), part.distance.end());
    solution.nfe += Sum(part.nfe) / all;
    solution.correction_evaluations += Sum(part.correction_evaluations) / all;
    solution.macs += Sum(part.macs) / all;
  }
  return solution;
}

PlanError ErrorAgainst(const Solution& reference, const Solution& solution) {
  const bool on_the_way = !reference.saved.shape.empty();
  const auto states_of = [on_the_way](const Solution& of) {
    return AsDoubles((on_the_way ? of.saved : of.state).view());
  };
  const std::vector<double> states = states_of(solution), exact = states_of(reference);
  const size_t rows = solution.status.size();
  const size_t width = states.size() / rows;
  PlanError error;
  for (size_t row = 0; row < rows; ++row) {
    const double found = RelativeError(std::span(states).subspan(row * width, width),
                                       std::span(exact).subspan(row * width, width));
    const bool usable = solution.status[row] == RowStatus::kConverged && std::isfinite(found);
    error.rows.push_back(usable ? found : std::numeric_limits<double>::infinity());
  }
  error.mean = Sum(error.rows) / static_cast<double>(rows);
  std::vector<double> sorted = error.rows;
  std::sort(sorted.begin(), sorted.end());
  error.p99 = sorted[(99 * sorted.size() + 99) / 100 - 1];  // the nearest rank
  error.max = *std::max_element(error.rows.begin(), error.rows.end());
  if (!solution.outputs.shape.empty()) {
    error.agreement = ShareOfEqual(LabelsOf(solution.outputs), LabelsOf(reference.outputs));
  }
  return error;
}

std::vector<int64_t> LabelsOf(const HostTensor& outputs) {
  const std::vector<double> values = AsDoubles(outputs.view());
  const int64_t rows = outputs.shape[0];
  const int64_t width = static_cast<int64_t>(values.size()) / rows;
  std::vector<int64_t> labels(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = values.begin() + row * width;
    labels[row] = std::max_element(first, first + width) - first;
  }
  return labels;
}

double ShareOfEqual(const std::vector<int64_t>& labels, const std::vector<int64_t>& others) {
  int64_t same = 0;
  for (size_t i = 0; i < labels.size(); ++i) same += labels[i] == others[i] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(labels.size());
}

}  // namespace hyperserve
