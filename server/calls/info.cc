#include "server/calls/info.h"

#include <algorithm>
#include <utility>

#include "server/batching/work.h"

namespace hyperserve {
namespace {

// Keeps one value while all rows of the stream agree; none afterwards.
template <class T>
void MergeUniform(const std::vector<T>& part, bool first, std::vector<T>& uniform) {
  if (first) {
    uniform = part.size() == 1 ? part : std::vector<T>();
  } else if (part != uniform) {
    uniform.clear();
  }
}

}  // namespace

SolveInfo InfoOf(const Prepared& prepared, std::string request_id) {
  const Plan& plan = prepared.plan.plan;
  return {.request_id = std::move(request_id),
          .model = prepared.served->name,
          .plan = prepared.plan.text,
          .tier = plan.tier,
          .generation = prepared.plan.generation ? prepared.plan.generation->number : 0,
          .base_digest = prepared.served->model->base_digest(),
          .calibrated_error = prepared.plan.error,
          .plan_reason = prepared.plan.reason,
          .probes = prepared.work.spec.probes};
}

void SetTimes(const WorkTimes& times, SolveInfo& info) {
  info.queue_seconds = times.queue_seconds.value_or(0);
  info.solve_seconds = times.solve_seconds.value_or(0);
}

void SetResult(const WorkResult& result, SolveInfo& info) {
  info.nfe = Collapse(result.rows.nfe);
  info.correction_evaluations = Collapse(result.rows.correction_evaluations);
  info.macs = Collapse(result.rows.macs);
  info.row_status = Collapse(result.rows.status);
  info.engine = result.engine;
  info.engine_reason = result.engine_reason;
  info.device = result.device;
  info.bucket = result.rows.bucket;
  info.error_bound = Collapse(result.error_bound);
  info.plan_rows = result.plan_rows;
  info.log_density_error = Collapse(result.rows.log_density_error);
}

void AddChunk(const SolveInfo& chunk, SolveInfo& stream) {
  const bool first = stream.engine.empty();
  MergeUniform(chunk.nfe, first, stream.nfe);
  MergeUniform(chunk.correction_evaluations, first, stream.correction_evaluations);
  MergeUniform(chunk.macs, first, stream.macs);
  MergeUniform(chunk.row_status, first, stream.row_status);
  MergeUniform(chunk.error_bound, first, stream.error_bound);
  MergeUniform(chunk.log_density_error, first, stream.log_density_error);
  if (first) {
    stream.plan_rows = chunk.plan_rows;
  } else {
    for (size_t i = 0; i < stream.plan_rows.size(); ++i) {
      stream.plan_rows[i].rows += chunk.plan_rows[i].rows;
      stream.plan_rows[i].rows_ended += chunk.plan_rows[i].rows_ended;
    }
  }
  stream.queue_seconds += chunk.queue_seconds;
  stream.solve_seconds += chunk.solve_seconds;
  stream.engine = chunk.engine;
  stream.engine_reason = chunk.engine_reason;
  stream.device = chunk.device;
  stream.bucket = std::max(stream.bucket, chunk.bucket);
}

}  // namespace hyperserve
