#include "core/engine/readable/segment_results.h"

#include <algorithm>
#include <utility>

#include "core/io/tensor.h"

namespace hyperserve {
namespace {

// A copy of rows [from, from + count) of one result to rows [to, to + count) of another.
struct Move {
  int64_t from = 0, to = 0, count = 0;
  int64_t rows = 0;  // of the whole target
};

void CopyRows(const HostTensor& source, const Move& move, HostTensor& target) {
  if (source.shape.empty()) return;
  if (target.shape.empty()) {
    Shape shape = source.shape;
    shape[0] = move.rows;
    target = HostTensor::Zeros(source.dtype, std::move(shape));
  }
  const auto row_bytes = static_cast<int64_t>(source.bytes.size()) / source.shape[0];
  std::copy_n(source.bytes.begin() + move.from * row_bytes, move.count * row_bytes,
              target.bytes.begin() + move.to * row_bytes);
}

template <class T>
void CopyRows(const std::vector<T>& source, const Move& move, std::vector<T>& target) {
  if (source.empty()) return;  // not asked for
  target.resize(static_cast<size_t>(move.rows));
  std::copy_n(source.begin() + move.from, move.count, target.begin() + move.to);
}

void CopyRows(const BatchResult& source, const Move& move, BatchResult& target) {
  CopyRows(source.status, move, target.status);
  CopyRows(source.depth, move, target.depth);
  CopyRows(source.distance, move, target.distance);
  CopyRows(source.state, move, target.state);
  CopyRows(source.saved, move, target.saved);
  CopyRows(source.outputs, move, target.outputs);
  CopyRows(source.log_density, move, target.log_density);
  CopyRows(source.log_density_error, move, target.log_density_error);
  CopyRows(source.product, move, target.product);
  CopyRows(source.condition_product, move, target.condition_product);
  CopyRows(source.nfe, move, target.nfe);
  CopyRows(source.correction_evaluations, move, target.correction_evaluations);
  CopyRows(source.macs, move, target.macs);
}

}  // namespace

void SegmentResults::Expect(int64_t first, Segment segment) {
  missing_rows_ += segment.rows;
  const int64_t rows = segment.rows, bucket = segment.bucket;
  expected_[first] = {.segment = std::move(segment), .missing = rows, .result = {.bucket = bucket}};
}

std::optional<SegmentResults::RowRange> SegmentResults::Forget(Ticket ticket) {
  std::erase_if(whole_, [&](const SolvedSegment& one) { return one.ticket == ticket; });
  const auto found = std::find_if(expected_.begin(), expected_.end(), [&](const auto& one) {
    return one.second.segment.ticket == ticket;
  });
  if (found == expected_.end()) return std::nullopt;
  const RowRange range{.first = found->first, .rows = found->second.segment.rows};
  missing_rows_ -= found->second.missing;
  expected_.erase(found);
  return range;
}

void SegmentResults::Take(EndedRows ended) {
  const auto count = static_cast<int64_t>(ended.numbers.size());
  const auto number = [&](int64_t place) { return ended.numbers[static_cast<size_t>(place)]; };
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    auto found = expected_.upper_bound(number(begin));
    if (found == expected_.begin()) continue;  // its segment was forgotten; likewise below
    --found;
    const int64_t first = found->first, rows = found->second.segment.rows;
    if (number(begin) >= first + rows) continue;
    while (end < count && number(end) == number(end - 1) + 1 && number(end) < first + rows) ++end;
    BatchResult& result = found->second.result;
    if (end - begin == count && count == rows) {
      ended.result.bucket = result.bucket;
      result = std::move(ended.result);
    } else {
      CopyRows(ended.result,
               {.from = begin, .to = number(begin) - first, .count = end - begin, .rows = rows},
               result);
    }
    found->second.missing -= end - begin;
    missing_rows_ -= end - begin;
    if (found->second.missing == 0) Complete(found);
  }
}

void SegmentResults::Complete(std::map<int64_t, Expected>::iterator found) {
  const Segment& segment = found->second.segment;
  BatchResult& result = found->second.result;
  for (size_t i = 0; i < segment.start_log_density.size(); ++i) {
    result.log_density.as<double>()[i] += segment.start_log_density[i];
  }
  whole_.push_back({.ticket = segment.ticket, .rows = std::move(result)});
  expected_.erase(found);
}

std::vector<SolvedSegment> SegmentResults::TakeWhole() { return std::exchange(whole_, {}); }

}  // namespace hyperserve
