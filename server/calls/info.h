// What every answer says of its solve, in our own terms. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/row_status.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/calls/prepare.h"

namespace hyperserve {

// Lists of figures of rows hold one value where all rows are equal.
struct SolveInfo {
  std::string request_id;
  std::string model;
  std::string plan;  // canonical spelling of what ran
  Tier tier = Tier::kExact;
  int64_t generation = 0;  // of the correction; 0: classical
  std::string base_digest;
  std::vector<int32_t> nfe;
  std::vector<int32_t> correction_evaluations;
  std::vector<int64_t> macs;
  std::vector<RowStatus> row_status;
  double queue_seconds = 0;
  double solve_seconds = 0;
  std::string engine;
  std::string engine_reason;  // why this engine, in words
  std::string device;
  int64_t bucket = 0;  // rows of the batch, padding included
};

// What is known before the solve.
SolveInfo InfoOf(const Prepared& prepared, std::string request_id);
// Where the time went.
void SetTimes(const WorkTimes& times, SolveInfo& info);
// What the engine says.
void SetResult(const WorkResult& result, SolveInfo& info);

// Adds a chunk's info to that of its stream, which says what InfoOf says before the first one.
// Times are summed; lists of figures hold one value while all rows of all chunks agree, else none.
void AddChunk(const SolveInfo& chunk, SolveInfo& stream);

// One value where all are equal.
template <class T>
std::vector<T> Collapse(const std::vector<T>& values) {
  for (const T& value : values) {
    if (value != values.front()) return values;
  }
  return {values.begin(), values.begin() + (values.empty() ? 0 : 1)};
}

}  // namespace hyperserve
