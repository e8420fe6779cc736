#include "server/batching/scatter.h"

#include <algorithm>
#include <utility>

#include "core/io/tensor.h"

namespace hyperserve {
namespace {

template <class T>
void AppendList(const std::vector<T>& part, std::vector<T>& whole) {
  whole.insert(whole.end(), part.begin(), part.end());
}

}  // namespace

BatchResult Concatenate(std::vector<BatchResult> parts) {
  BatchResult whole = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    const BatchResult& part = parts[i];
    AppendList(part.status, whole.status);
    AppendList(part.depth, whole.depth);
    AppendList(part.distance, whole.distance);
    AppendRows(part.state.view(), whole.state);
    AppendRows(part.saved.view(), whole.saved);
    AppendRows(part.outputs.view(), whole.outputs);
    AppendRows(part.log_density.view(), whole.log_density);
    AppendList(part.nfe, whole.nfe);
    AppendList(part.correction_evaluations, whole.correction_evaluations);
    AppendList(part.macs, whole.macs);
    whole.bucket = std::max(whole.bucket, part.bucket);
    whole.solved_again += part.solved_again;
  }
  return whole;
}

}  // namespace hyperserve
