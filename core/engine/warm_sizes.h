// Which sizes of batches, in rows, are worth a step of their own before they are served, and which
// a measurement: of each, as few as tell the others. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hyperserve {

// Of the steps and tables of larger buckets nothing is captured: there the work outweighs its
// launches. On an H200, fashion's steps of 32 rows (1.1e9 MACs an evaluation of f) gained 1.1
// to 1.5 times by it, those of 256 rows nothing, and their memory was the lanes' for good.
inline constexpr int64_t kGraphRowsMax = 1024;
inline constexpr double kGraphMacsMax = 2e9;
// The most MACs of an evaluation of f that a plan is timed with: a GPU is busy long before, and
// larger batches take time in proportion.
inline constexpr double kTimedMacsMax = 1e10;

// A batch, and a model whose f makes so many MACs a row.
struct BatchBound {
  int64_t rows_max = 1;
  int64_t field_macs = 1;
};

// The largest bucket of which anything is captured, on a device that captures; at least 1.
int64_t CapturedRowsMax(int64_t field_macs);

// The bucket in which a captured table solves so many rows: a power of four, at most
// CapturedRowsMax; Bucket(rows) where more rows are asked for, which are not captured. Half as many
// to capture as there are buckets, at the price of at most four times the rows, which few rows on a
// GPU hardly cost.
int64_t TableBucket(int64_t rows, int64_t field_macs);

// Whether so many rows under a plan of this engine are solved by what was captured at a warm-up.
bool IsCaptured(std::string_view device, std::string_view engine, int64_t rows, int64_t field_macs);

// The sizes at which a plan is timed, rising. A CPU: 1 and rows_max. CUDA: powers of 16, and the
// largest bucket within rows_max and kTimedMacsMax; times between them are interpolated.
std::vector<int64_t> TimedRows(std::string_view device, const BatchBound& bound);

// The buckets in which every thread that solves images should have evaluated their nets, rising:
// above those that are captured, up to kGraphRowsMax and kTimedMacsMax. There the plans of cuDNN,
// which LibTorch keeps for each thread, take longer than an evaluation of f. Empty on a CPU.
std::vector<int64_t> PlannedRows(std::string_view device, const BatchBound& bound);

// The sizes at which a plan of this engine is warmed, falling, so that smaller batches find the
// memory of larger ones. 1 where sizes make no difference: on a CPU, and for an engine that makes
// whole solves in a launch. Else the buckets that are captured, and those of TimedRows.
std::vector<int64_t> WarmRows(std::string_view device, std::string_view engine,
                              const BatchBound& bound);

}  // namespace hyperserve
