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

// Also of the first part, which was moved into `whole`.
size_t RowsOfAll(const BatchResult& whole, const std::vector<BatchResult>& parts) {
  size_t rows = whole.status.size();
  for (size_t i = 1; i < parts.size(); ++i) rows += parts[i].status.size();
  return rows;
}

}  // namespace

// One allocation for each list, however many parts there are.
BatchResult Concatenate(std::vector<BatchResult> parts) {
  BatchResult whole = std::move(parts.front());
  if (parts.size() == 1) return whole;
  const size_t rows = RowsOfAll(whole, parts);
  const auto join_list = [&](auto list) {
    (whole.*list).reserve(rows);
    for (size_t i = 1; i < parts.size(); ++i) AppendList(parts[i].*list, whole.*list);
  };
  const auto join_rows = [&](auto tensor) {
    (whole.*tensor).bytes.reserve(rows * RowBytes((whole.*tensor).view()));
    for (size_t i = 1; i < parts.size(); ++i) AppendRows((parts[i].*tensor).view(), whole.*tensor);
  };
  join_list(&BatchResult::status);
  join_list(&BatchResult::depth);
  join_list(&BatchResult::distance);
  join_list(&BatchResult::log_density_error);
  join_list(&BatchResult::nfe);
  join_list(&BatchResult::correction_evaluations);
  join_list(&BatchResult::macs);
  join_rows(&BatchResult::state);
  join_rows(&BatchResult::saved);
  join_rows(&BatchResult::outputs);
  join_rows(&BatchResult::log_density);
  join_rows(&BatchResult::product);
  join_rows(&BatchResult::condition_product);
  for (size_t i = 1; i < parts.size(); ++i) {
    whole.bucket = std::max(whole.bucket, parts[i].bucket);
    whole.solved_again += parts[i].solved_again;
  }
  return whole;
}

}  // namespace hyperserve
