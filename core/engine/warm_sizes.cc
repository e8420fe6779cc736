#include "core/engine/warm_sizes.h"

#include <algorithm>
#include <bit>

namespace hyperserve {
namespace {

constexpr int64_t kTimedEvery = 16;

bool IsCpu(std::string_view device) { return device == "cpu"; }

// The largest power of two whose evaluation of f is within the bound, and within `rows_max`.
int64_t LargestBucket(double macs_max, int64_t field_macs, int64_t rows_max) {
  const double rows = macs_max / static_cast<double>(std::max<int64_t>(field_macs, 1));
  const double within = std::clamp(rows, 1.0, static_cast<double>(std::max<int64_t>(rows_max, 1)));
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(within)));
}

}  // namespace

int64_t CapturedRowsMax(int64_t field_macs) {
  return LargestBucket(kGraphMacsMax, field_macs, kGraphRowsMax);
}

int64_t TableBucket(int64_t rows, int64_t field_macs) {
  const int64_t most = CapturedRowsMax(field_macs);
  if (rows > most) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  int64_t bucket = 1;
  while (bucket < rows) bucket *= 4;
  return std::min(bucket, most);
}

bool IsCaptured(std::string_view device, std::string_view engine, int64_t rows,
                int64_t field_macs) {
  return !IsCpu(device) && engine != "fused" && rows <= CapturedRowsMax(field_macs);
}

std::vector<int64_t> TimedRows(std::string_view device, const BatchBound& bound) {
  const int64_t largest = IsCpu(device)
                              ? bound.rows_max
                              : LargestBucket(kTimedMacsMax, bound.field_macs, bound.rows_max);
  std::vector<int64_t> rows = {1};
  for (int64_t size = kTimedEvery; size < largest && !IsCpu(device); size *= kTimedEvery) {
    rows.push_back(size);
  }
  if (largest > 1) rows.push_back(largest);
  return rows;
}

std::vector<int64_t> WarmRows(std::string_view device, std::string_view engine,
                              const BatchBound& bound) {
  if (IsCpu(device) || engine == "fused") return {1};
  std::vector<int64_t> rows = TimedRows(device, bound);
  const int64_t captured = std::min(CapturedRowsMax(bound.field_macs), bound.rows_max);
  for (int64_t bucket = 1; bucket <= captured; bucket *= 2) rows.push_back(bucket);
  std::sort(rows.begin(), rows.end(), std::greater<>());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::vector<int64_t> PlannedRows(std::string_view device, const BatchBound& bound) {
  std::vector<int64_t> rows;
  if (IsCpu(device)) return rows;
  const int64_t most = LargestBucket(kTimedMacsMax, bound.field_macs, kGraphRowsMax);
  int64_t bucket = 2 * CapturedRowsMax(bound.field_macs);
  for (; bucket <= most && bucket < 2 * bound.rows_max; bucket *= 2) rows.push_back(bucket);
  return rows;
}

}  // namespace hyperserve
