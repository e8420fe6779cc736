#include "core/io/rows.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/status.h"
#include "core/io/csv.h"
#include "core/io/file.h"
#include "core/io/idx.h"
#include "core/io/npy.h"
#include "core/io/safetensors.h"

namespace hyperserve {
namespace {

constexpr int64_t kBytesMax = int64_t{4} << 30;
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kIdx("\0\0", 2);
constexpr size_t kSafetensorsJson = 8;  // where the header begins

absl::StatusOr<std::string> ReadToItsEnd() {
  std::string bytes;
  constexpr size_t kChunk = 1 << 16;
  while (true) {
    const size_t used = bytes.size();
    bytes.resize(used + kChunk);
    const ssize_t got = read(STDIN_FILENO, bytes.data() + used, kChunk);
    if (got < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "cannot read");
    bytes.resize(used + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
    if (static_cast<int64_t>(bytes.size()) > kBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kBytesMax, " bytes"));
    }
  }
}

absl::StatusOr<std::string> BytesOf(const std::string& path) {
  if (path != "-") return ReadFile(path, kBytesMax);
  static const absl::StatusOr<std::string> standard_input = ReadToItsEnd();
  return standard_input;
}

std::string NameOf(const std::string& path) { return path == "-" ? "standard input" : path; }

absl::StatusOr<HostTensor> TensorOf(std::string bytes, const std::string& tensor_name) {
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(std::move(bytes)));
  std::string name = tensor_name.empty() ? "x" : tensor_name;
  if (tensor_name.empty() && file.tensors().size() == 1) name = file.tensors().begin()->first;
  const absl::StatusOr<TensorView> view = file.Find(name);
  if (!view.ok()) return Annotate(view.status(), absl::StrCat("--tensor=", name));
  return HostTensor::CopyOf(*view);
}

HostTensor WithoutLastColumn(const HostTensor& rows) {
  const int64_t columns = rows.shape[1] - 1;
  HostTensor fewer = HostTensor::Zeros(rows.dtype, {rows.shape[0], columns});
  const size_t width = static_cast<size_t>(columns) * DtypeSize(rows.dtype);
  for (int64_t row = 0; row < rows.shape[0]; ++row) {
    const TensorView whole = RowsOf(rows.view(), row, 1);
    std::ranges::copy(whole.bytes.first(width),
                      fewer.bytes.begin() + row * static_cast<int64_t>(width));
  }
  return fewer;
}

absl::StatusOr<HostTensor> NumbersOf(std::string_view text) {
  if (text.find('\0') != text.npos) {
    return absl::InvalidArgumentError(
        "neither NPY, safetensors or IDX, nor text with rows of numbers");
  }
  HS_ASSIGN_OR_RETURN(CsvRows csv, ParseCsv(text));
  const bool density = csv.names.size() > 1 && csv.names.back() == "log_density" &&
                       csv.rows.shape[1] == std::ssize(csv.names);
  return density ? WithoutLastColumn(csv.rows) : std::move(csv.rows);
}

// Sets `flat`, too. `named`: the file's name says that it is safetensors.
absl::StatusOr<HostTensor> Parse(std::string bytes, const std::string& tensor_name,
                                 std::string_view name, bool& flat) {
  if (bytes.starts_with(kGzip)) {
    HS_ASSIGN_OR_RETURN(bytes, Gunzip(bytes, kBytesMax));
  }
  if (bytes.starts_with(kNpyMagic)) return ParseNpy(bytes);
  const bool safetensors = bytes.size() > kSafetensorsJson && bytes[kSafetensorsJson] == '{' &&
                           bytes[kSafetensorsJson - 1] == '\0';
  if (safetensors || name.ends_with(".safetensors")) {
    return TensorOf(std::move(bytes), tensor_name);
  }
  if (bytes.starts_with(kIdx)) return ParseIdx(bytes);
  if (const std::string_view mistaken = MistakenFile(bytes); !mistaken.empty()) {
    return absl::InvalidArgumentError(Absl(mistaken));
  }
  flat = true;
  return NumbersOf(bytes);
}

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Would [height, width, channels] be the model's [channels, height, width]?
bool IsChannelLast(const Shape& found, const Shape& wanted) {
  return found.size() == 3 && wanted.size() == 3 &&
         found == Shape({wanted[1], wanted[2], wanted[0]});
}

}  // namespace

absl::StatusOr<RowsFile> ReadRows(const std::string& path, const std::string& tensor_name) {
  RowsFile file{.name = NameOf(path), .rows = {}};
  absl::StatusOr<std::string> bytes = BytesOf(path);
  if (!bytes.ok()) {
    return path == "-" ? Annotate(bytes.status(), file.name) : bytes.status();
  }
  absl::StatusOr<HostTensor> rows = Parse(*std::move(bytes), tensor_name, file.name, file.flat);
  if (!rows.ok()) return Annotate(rows.status(), file.name);
  file.rows = *std::move(rows);
  if (file.rows.shape.empty() || file.rows.shape[0] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": holds no rows"));
  }
  return file;
}

absl::StatusOr<RowsFile> ReadTensorBeside(const std::string& path, const std::string& name) {
  RowsFile file{.name = absl::StrCat(NameOf(path), ": ", name), .rows = {}};
  HS_ASSIGN_OR_RETURN(std::string bytes, BytesOf(path));
  const absl::StatusOr<SafetensorsFile> tensors = SafetensorsFile::Parse(std::move(bytes));
  if (!tensors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(path), ": a safetensors file with the tensors x and ", name, " is wanted"));
  }
  const absl::StatusOr<TensorView> view = tensors->Find(name);
  if (!view.ok()) return Annotate(view.status(), NameOf(path));
  file.rows = HostTensor::CopyOf(*view);
  return file;
}

absl::StatusOr<HostTensor> FitRows(RowsFile file, const Shape& row_shape, int64_t limit) {
  HostTensor& rows = file.rows;
  const Shape found(rows.shape.begin() + 1, rows.shape.end());
  const bool same = WithoutOnes(found) == WithoutOnes(row_shape);
  if (!same && !(file.flat && ElementCount(found) == ElementCount(row_shape))) {
    std::string text = absl::StrCat(file.name, ": a row has shape ", ShapeText(found),
                                    ", the model takes ", ShapeText(row_shape));
    if (IsChannelLast(found, row_shape)) {
      absl::StrAppend(&text,
                      "; these are images with the channels last (NHWC), the model takes "
                      "them first (NCHW): transpose(0, 3, 1, 2) in NumPy");
    }
    return absl::InvalidArgumentError(text);
  }
  const size_t row_bytes = RowBytes(rows.view());
  if (limit > 0) rows.shape[0] = std::min(rows.shape[0], limit);
  rows.bytes.resize(row_bytes * static_cast<size_t>(rows.shape[0]));
  rows.shape.resize(1);
  rows.shape.insert(rows.shape.end(), row_shape.begin(), row_shape.end());
  return std::move(rows);
}

}  // namespace hyperserve
