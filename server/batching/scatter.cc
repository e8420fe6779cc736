#include "server/batching/scatter.h"

#include <algorithm>
#include <utility>

namespace hyperserve {
namespace {

// What was not asked for is an empty tensor and stays one.
HostTensor RowsOfTensor(const HostTensor& tensor, int64_t total, int64_t begin, int64_t rows) {
  HostTensor part{.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}};
  if (tensor.shape.empty()) return part;
  const size_t row_bytes = tensor.bytes.size() / static_cast<size_t>(total);
  part.shape[0] = rows;
  const auto first = tensor.bytes.begin() + static_cast<ptrdiff_t>(begin * row_bytes);
  part.bytes.assign(first, first + static_cast<ptrdiff_t>(rows * row_bytes));
  return part;
}

template <class T>
std::vector<T> RowsOfList(const std::vector<T>& list, int64_t begin, int64_t rows) {
  return {list.begin() + begin, list.begin() + begin + rows};
}

void AppendTensor(const HostTensor& part, HostTensor& whole) {
  if (part.shape.empty()) return;
  whole.shape[0] += part.shape[0];
  whole.bytes.insert(whole.bytes.end(), part.bytes.begin(), part.bytes.end());
}

template <class T>
void AppendList(const std::vector<T>& part, std::vector<T>& whole) {
  whole.insert(whole.end(), part.begin(), part.end());
}

}  // namespace

Segment RowsOf(const Segment& segment, int64_t begin, int64_t rows) {
  Segment part = segment;
  part.rows = rows;
  part.first_row += static_cast<uint64_t>(begin);
  if (!segment.data.shape.empty()) {
    const size_t row_bytes = segment.data.bytes.size() / static_cast<size_t>(segment.rows);
    part.data.shape[0] = rows;
    part.data.bytes = segment.data.bytes.subspan(static_cast<size_t>(begin) * row_bytes,
                                                 static_cast<size_t>(rows) * row_bytes);
  }
  return part;
}

BatchResult RowsOf(const BatchResult& result, int64_t begin, int64_t rows) {
  const auto total = static_cast<int64_t>(result.status.size());
  return {.status = RowsOfList(result.status, begin, rows),
          .state = RowsOfTensor(result.state, total, begin, rows),
          .saved = RowsOfTensor(result.saved, total, begin, rows),
          .outputs = RowsOfTensor(result.outputs, total, begin, rows),
          .log_density = RowsOfTensor(result.log_density, total, begin, rows),
          .nfe = RowsOfList(result.nfe, begin, rows),
          .correction_evaluations = RowsOfList(result.correction_evaluations, begin, rows),
          .macs = RowsOfList(result.macs, begin, rows),
          .bucket = result.bucket};
}

BatchResult Concatenate(std::vector<BatchResult> parts) {
  BatchResult whole = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    const BatchResult& part = parts[i];
    AppendList(part.status, whole.status);
    AppendTensor(part.state, whole.state);
    AppendTensor(part.saved, whole.saved);
    AppendTensor(part.outputs, whole.outputs);
    AppendTensor(part.log_density, whole.log_density);
    AppendList(part.nfe, whole.nfe);
    AppendList(part.correction_evaluations, whole.correction_evaluations);
    AppendList(part.macs, whole.macs);
    whole.bucket = std::max(whole.bucket, part.bucket);
  }
  return whole;
}

}  // namespace hyperserve
