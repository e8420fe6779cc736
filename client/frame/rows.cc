#include "client/frame/rows.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/frame/failure.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

// The numbers of one line; nullopt where a field is no number.
std::optional<std::vector<double>> ParseLine(absl::string_view line) {
  std::vector<double> numbers;
  for (absl::string_view field : absl::StrSplit(line, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(field), &number)) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<RowsFile> ReadInput(const std::string& path, const std::string& tensor_name) {
  absl::StatusOr<RowsFile> file = ReadRows(path, tensor_name);
  if (!file.ok()) return FileError(file.status());
  return file;
}

absl::StatusOr<HostTensor> FitInput(RowsFile file, const Shape& row_shape, int64_t limit) {
  absl::StatusOr<HostTensor> rows = FitRows(std::move(file), row_shape, limit);
  if (!rows.ok()) return FileError(rows.status());
  return rows;
}

HostTensor ForTier(const HostTensor& rows, Tier tier) {
  const Dtype wanted = tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32;
  if (rows.dtype == Dtype::kU8 || rows.dtype == wanted) return rows;
  return ConvertedTo(rows.view(), wanted);
}

absl::StatusOr<double> Accuracy(const std::string& labels_path, std::span<const int64_t> labels) {
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(labels_path, ""));
  HS_ASSIGN_OR_RETURN(const HostTensor truth, FitInput(std::move(file), {}, 0));
  if (truth.elements() < std::ssize(labels)) {
    return FileError(absl::InvalidArgumentError(
        absl::StrCat(labels_path, ": holds shape ", ShapeText(truth.shape), " where at least [",
                     labels.size(), "] labels are needed")));
  }
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double label = ElementAsDouble(truth.view(), static_cast<int64_t>(i));
    right += label == static_cast<double>(labels[i]) ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

absl::Status ForEachSlice(int64_t rows, int64_t batch, int concurrency,
                          const std::function<absl::Status(const Slice&)>& work) {
  const int64_t slices = (rows + batch - 1) / batch;
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  absl::Status first_failure;
  const auto loop = [&] {
    for (int64_t index = next++; index < slices; index = next++) {
      const int64_t begin = index * batch;
      const absl::Status status =
          work({.index = index, .begin = begin, .end = std::min(begin + batch, rows)});
      if (status.ok()) continue;
      next = slices;
      const std::lock_guard lock(mutex);
      first_failure.Update(status);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min<int64_t>(concurrency, slices); ++i) threads.emplace_back(loop);
  loop();
  for (std::thread& thread : threads) thread.join();
  return first_failure;
}

std::string PrintCsv(const std::vector<std::string>& header, const HostTensor& rows,
                     const HostTensor& extra) {
  std::string text = absl::StrCat(absl::StrJoin(header, ","), "\n");
  const int64_t count = rows.shape.empty() ? 0 : rows.shape[0];
  const int64_t columns = count == 0 ? 0 : rows.elements() / count;
  const auto append = [&text](const HostTensor& tensor, int64_t index) {
    const double number = ElementAsDouble(tensor.view(), index);
    const bool narrow = tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kF16;
    text += narrow ? ShortestText(static_cast<float>(number)) : ShortestText(number);
  };
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      if (column > 0) text += ',';
      append(rows, row * columns + column);
    }
    if (!extra.bytes.empty()) {
      text += ',';
      append(extra, row);
    }
    text += '\n';
  }
  return text;
}

absl::StatusOr<std::vector<double>> ParseNumbers(std::string_view flag, std::string_view text) {
  if (text.empty()) return std::vector<double>();
  const auto numbers = ParseLine(Absl(text));
  if (!numbers) {
    return UsageError(absl::StrCat("--", Absl(flag), "=", Absl(text),
                                   " is not a list of numbers separated by commas"));
  }
  return *numbers;
}

}  // namespace hyperserve
