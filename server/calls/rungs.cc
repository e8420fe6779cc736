#include "server/calls/rungs.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "core/engine/batch_spec.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/calls/rows.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

HostTensor NoiseOf(const Work& all, const std::vector<int64_t>& rows) {
  const int64_t dimensions = all.spec.model->state_elements();
  std::vector<double> noise(rows.size() * static_cast<size_t>(dimensions));
  auto place = std::span(noise);
  for (const int64_t row : rows) {
    PhiloxNormals(all.segment.seed, all.segment.first_row + static_cast<uint64_t>(row), 1,
                  dimensions, place.first(static_cast<size_t>(dimensions)));
    place = place.subspan(static_cast<size_t>(dimensions));
  }
  Shape shape = all.spec.model->state_shape();
  shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
  return TensorOf(noise, shape, all.spec.tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32);
}

void PutRows(const HostTensor& part, const std::vector<int64_t>& rows, HostTensor& all) {
  if (part.shape.empty()) return;
  const size_t row_bytes = part.bytes.size() / rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(part.bytes.begin() + static_cast<std::ptrdiff_t>(i * row_bytes), row_bytes,
                all.bytes.begin() + rows[i] * static_cast<std::ptrdiff_t>(row_bytes));
  }
}

template <class T>
void PutRows(const std::vector<T>& part, const std::vector<int64_t>& rows, std::vector<T>& all) {
  for (size_t i = 0; i < part.size(); ++i) all[static_cast<size_t>(rows[i])] = part[i];
}

template <class T>
void AddRows(const std::vector<T>& part, const std::vector<int64_t>& rows, std::vector<T>& all) {
  for (size_t i = 0; i < part.size(); ++i) all[static_cast<size_t>(rows[i])] += part[i];
}

}  // namespace

std::vector<double> BoundsOf(const BatchResult& rows, std::optional<double> factor) {
  std::vector<double> bounds(rows.status.size(), kNaN);
  if (!factor) return bounds;
  for (size_t row = 0; row < bounds.size(); ++row) {
    if (rows.status[row] == RowStatus::kConverged) bounds[row] = *factor * rows.distance[row];
  }
  return bounds;
}

std::vector<int64_t> RowsThatGoOn(const std::vector<double>& bounds, double target) {
  std::vector<int64_t> rows;
  for (size_t row = 0; row < bounds.size(); ++row) {
    if (!(bounds[row] <= target)) rows.push_back(static_cast<int64_t>(row));
  }
  return rows;
}

Work WorkOfRows(const Work& all, const std::vector<int64_t>& rows) {
  Work work = all;
  const double share = static_cast<double>(rows.size()) / static_cast<double>(all.segment.rows);
  const bool is_noise = all.spec.entry == Entry::kNoise;
  const TensorView& conditions = all.segment.condition;
  const bool of_each = !conditions.shape.empty() && conditions.shape[0] > 1;
  const auto kept = std::make_shared<const RowsOfJob>(
      RowsOfJob{.data = is_noise ? NoiseOf(all, rows) : RowsAt(all.segment.data, rows),
                .condition = of_each ? RowsAt(conditions, rows) : HostTensor::CopyOf(conditions)});
  if (is_noise) {
    work.spec.entry = Entry::kState;
    work.spec.dtype = kept->data.dtype;
  }
  work.segment.rows = static_cast<int64_t>(rows.size());
  work.segment.data = kept->data.view();
  work.segment.condition = kept->condition.view();
  work.keep_alive = kept;
  work.bytes = static_cast<int64_t>(share * static_cast<double>(all.bytes)) +
               (is_noise ? static_cast<int64_t>(kept->data.bytes.size()) : 0);
  work.macs = static_cast<int64_t>(share * static_cast<double>(all.macs));
  return work;
}

void PutRows(const WorkResult& part, const std::vector<int64_t>& rows, WorkResult& all) {
  const BatchResult& from = part.rows;
  BatchResult& to = all.rows;
  PutRows(from.status, rows, to.status);
  PutRows(from.state, rows, to.state);
  PutRows(from.depth, rows, to.depth);
  PutRows(from.saved, rows, to.saved);
  PutRows(from.outputs, rows, to.outputs);
  PutRows(from.log_density, rows, to.log_density);
  PutRows(part.error_bound, rows, all.error_bound);
  AddRows(from.nfe, rows, to.nfe);
  AddRows(from.correction_evaluations, rows, to.correction_evaluations);
  AddRows(from.macs, rows, to.macs);
  to.bucket = std::max(to.bucket, from.bucket);
  to.solved_again += from.solved_again;
  all.engine = part.engine;
  all.engine_reason = part.engine_reason;
  all.device = part.device;
}

}  // namespace hyperserve
