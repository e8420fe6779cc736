// What solves of an engine take, from a few that were timed: for the time left of a command. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "programs/time_after.h"

namespace hyperserve {

// A batch is timed several times: once to warm up, then kTimedRuns times, fewer where kTimedSeconds
// have passed.
inline constexpr int kTimedRuns = 5;
inline constexpr double kTimedSeconds = 0.5;

// The sizes of batches that are timed: 1, 8, 64, ... and the largest.
std::vector<int64_t> TimedSizes(int64_t largest);

struct Pace {
  // Seconds of an evaluation of f in float32: of a batch, whatever it holds, and of each row.
  double batch = kTimeUnknown, row = kTimeUnknown;
  // So many times as long is a solve with the log-density, and one in tier double.
  double with_density = 1, in_double = 1;

  // From two solves of `evaluations`: of one row alone, and of more.
  static Pace Of(double evaluations, double one_row, int64_t rows, double all_rows);
  // Of so many evaluations of f for `rows` rows, solved `at_once`.
  double Solve(double evaluations, int64_t rows, int64_t at_once) const;
  // Of the timed runs of all sizes of batches up to `largest`.
  double TimedRuns(double evaluations, int64_t largest) const;
};

}  // namespace hyperserve
