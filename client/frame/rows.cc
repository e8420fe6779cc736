#include "client/frame/rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
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
#include "client/frame/table.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/idx.h"
#include "core/io/safetensors.h"

namespace hyperserve {
namespace {

constexpr int64_t kFileBytesMax = int64_t{4} << 30;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

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

// A header has no number at all. A first line with some numbers is a row with a mistake.
bool IsHeader(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  return std::ranges::none_of(fields,
                              [](absl::string_view field) { return ParseLine(field).has_value(); });
}

absl::StatusOr<HostTensor> ReadSafetensorsRows(const std::string& path,
                                               const std::string& tensor_name) {
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::string name = tensor_name.empty() ? "x" : tensor_name;
  if (tensor_name.empty() && file.tensors().size() == 1) name = file.tensors().begin()->first;
  const absl::StatusOr<TensorView> view = file.Find(name);
  if (!view.ok()) return Annotate(view.status(), absl::StrCat(path, ": --tensor=", name));
  return HostTensor::CopyOf(*view);
}

absl::StatusOr<HostTensor> ReadCsvRows(const std::string& path) {
  HS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  absl::StatusOr<HostTensor> rows = ParseCsv(text);
  if (rows.ok()) return rows;
  return Annotate(rows.status(), path);
}

absl::StatusOr<HostTensor> ReadIdxRows(const std::string& path) {
  absl::StatusOr<HostTensor> rows = ReadIdx(path);
  if (rows.ok() || absl::IsNotFound(rows.status())) return rows;
  return absl::Status(
      rows.status().code(),
      absl::StrCat(rows.status().message(),
                   " (read as IDX: the name ends in neither .csv nor .safetensors)"));
}

bool IsCsv(const std::string& path) { return path.ends_with(".csv"); }

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Would [height, width, channels] be the model's [channels, height, width]?
bool IsChannelLast(const Shape& found, const Shape& wanted) {
  return found.size() == 3 && wanted.size() == 3 &&
         found == Shape({wanted[1], wanted[2], wanted[0]});
}

template <class To>
HostTensor Converted(const HostTensor& from, Dtype dtype) {
  HostTensor to = HostTensor::Zeros(dtype, from.shape);
  const auto numbers = to.as<To>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<To>(ElementAsDouble(from, static_cast<int64_t>(i)));
  }
  return to;
}

}  // namespace

absl::StatusOr<HostTensor> ParseCsv(std::string_view text) {
  std::vector<double> numbers;
  int64_t rows = 0;
  size_t columns = 0;
  int64_t line_number = 0;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (absl::string_view line : absl::StrSplit(Absl(text), '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto row = ParseLine(line);
    if (!row && line_number == 1 && IsHeader(line)) continue;
    if (!row) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line_number, " is not numbers"));
    }
    if (rows > 0 && row->size() != columns) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line_number, " has ",
                                                     Counted(row->size(), "number"),
                                                     ", the ones before have ", columns));
    }
    columns = row->size();
    numbers.insert(numbers.end(), row->begin(), row->end());
    ++rows;
  }
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, {rows, static_cast<int64_t>(columns)});
  std::ranges::copy(numbers, tensor.as<double>().begin());
  return tensor;
}

absl::StatusOr<HostTensor> ReadRows(const std::string& path, const std::string& tensor_name) {
  absl::StatusOr<HostTensor> rows = path.ends_with(".safetensors")
                                        ? ReadSafetensorsRows(path, tensor_name)
                                    : IsCsv(path) ? ReadCsvRows(path)
                                                  : ReadIdxRows(path);
  if (!rows.ok()) return FileError(rows.status());
  if (rows->shape.empty() || rows->shape[0] == 0) {
    return FileError(absl::InvalidArgumentError(absl::StrCat(path, ": holds no rows")));
  }
  return rows;
}

absl::StatusOr<HostTensor> FitRows(HostTensor rows, const std::string& path, const Shape& row_shape,
                                   int64_t limit) {
  const Shape found(rows.shape.begin() + 1, rows.shape.end());
  const bool same = WithoutOnes(found) == WithoutOnes(row_shape);
  const bool flat = IsCsv(path) && ElementCount(found) == ElementCount(row_shape);
  if (!same && !flat) {
    std::string text = absl::StrCat(path, ": a row has shape ", ShapeText(found),
                                    ", the model takes ", ShapeText(row_shape));
    if (IsChannelLast(found, row_shape)) {
      absl::StrAppend(&text,
                      "; these are images with the channels last (NHWC), the model takes "
                      "them first (NCHW): transpose(0, 3, 1, 2) in NumPy");
    }
    return FileError(absl::InvalidArgumentError(text));
  }
  const size_t row_bytes = RowBytes(rows.view());
  if (limit > 0) rows.shape[0] = std::min(rows.shape[0], limit);
  rows.bytes.resize(row_bytes * rows.shape[0]);
  rows.shape.resize(1);
  rows.shape.insert(rows.shape.end(), row_shape.begin(), row_shape.end());
  return rows;
}

absl::StatusOr<HostTensor> ForTier(const HostTensor& rows, Tier tier) {
  const Dtype wanted = tier == Tier::kDouble ? Dtype::kF64 : Dtype::kF32;
  if (rows.dtype == Dtype::kU8 || rows.dtype == wanted) return rows;
  if (rows.dtype == Dtype::kF16) {
    return FileError(absl::InvalidArgumentError("F16 inputs are not taken: store them as F32"));
  }
  return wanted == Dtype::kF64 ? Converted<double>(rows, wanted) : Converted<float>(rows, wanted);
}

double ElementAsDouble(const HostTensor& tensor, int64_t index) {
  switch (tensor.dtype) {
    case Dtype::kF32:
      return tensor.as<float>()[index];
    case Dtype::kF64:
      return tensor.as<double>()[index];
    case Dtype::kU8:
      return tensor.as<uint8_t>()[index];
    case Dtype::kI64:
      return static_cast<double>(tensor.as<int64_t>()[index]);
    case Dtype::kF16:
      break;  // excluded by the contract
  }
  return 0;
}

absl::StatusOr<double> Accuracy(const std::string& labels_path, std::span<const int64_t> labels) {
  const absl::StatusOr<HostTensor> file = ReadIdx(labels_path);
  if (!file.ok()) return FileError(file.status());
  const HostTensor& truth = *file;
  if (truth.shape.size() != 1 || truth.elements() < std::ssize(labels)) {
    return FileError(absl::InvalidArgumentError(
        absl::StrCat(labels_path, ": holds shape ", ShapeText(truth.shape), " where at least [",
                     labels.size(), "] labels are needed")));
  }
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) right += truth.as<uint8_t>()[i] == labels[i] ? 1 : 0;
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
    text += tensor.dtype == Dtype::kF32 ? ShortestText(tensor.as<float>()[index])
                                        : ShortestText(ElementAsDouble(tensor, index));
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
