// What every answer says about its solve. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/calls/prepare.h"

namespace hyperserve {

// The four lists have one value a row, or one value in all where the rows agree.
struct SolveInfo {
  std::string request_id;
  std::string model;
  std::string plan;  // the plan that ran, or the automatic plan per row, in its canonical spelling
  Tier tier = Tier::kExact;
  int64_t generation = 0;  // of the correction; 0: classical
  std::string base_digest;
  std::vector<int32_t> nfe;                     // evaluations of f
  std::vector<int32_t> correction_evaluations;  // evaluations of g
  std::vector<int64_t> macs;                    // multiply-accumulates of f, g, tangents and maps
  std::vector<RowStatus> row_status;
  double queue_seconds = 0;                // from admission to the first run
  double solve_seconds = 0;                // from then to the answer
  std::string engine;                      // "readable"
  std::string engine_reason;               // why this engine was chosen, as a sentence
  std::string device;                      // "cpu", "cuda:0"
  std::optional<double> calibrated_error;  // of the plan, the mean; nullopt: not measured
  std::string plan_reason;                 // as ServedPlan's
  int64_t bucket = 0;                      // rows of the batch, padding included
  // As WorkResult's.
  std::vector<double> error_bound = {};
  std::vector<PlanRows> plan_rows = {};
  int64_t probes = 0;  // by which log-densities were estimated; 0: by none
  std::vector<double> log_density_error = {};
};

// The info before the solve: request, model, plan and generation are set.
SolveInfo InfoOf(const Prepared& prepared, std::string request_id);
// Sets the two times; 0 where a time is not known.
void SetTimes(const WorkTimes& times, SolveInfo& info);
// Sets the lists, the engine, the device and the bucket.
void SetResult(const WorkResult& result, SolveInfo& info);

// Adds the info of one chunk to the info of its stream; before the first chunk that one is what
// InfoOf returned. Times are summed. A list has one value while all rows of all chunks agree, and
// is empty afterwards. The rows of plans are summed.
void AddChunk(const SolveInfo& chunk, SolveInfo& stream);

// One value where all values are equal, else all of them.
template <class T>
std::vector<T> Collapse(const std::vector<T>& values) {
  for (const T& value : values) {
    if (value != values.front()) return values;
  }
  return {values.begin(), values.begin() + (values.empty() ? 0 : 1)};
}

}  // namespace hyperserve
