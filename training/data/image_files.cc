#include "training/data/image_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/tensor.h"

namespace hyperserve {
namespace {

constexpr char kCifarTest[] = "test_batch.bin";
constexpr int kCifarTrainingFiles = 5;
constexpr int64_t kCifarImageBytes = 3 * 32 * 32, kCifarRecordBytes = 1 + kCifarImageBytes;
constexpr int64_t kCifarBytesMax = int64_t{1} << 30;  // of one file

// Reads the first of these files of the folder that is there.
absl::StatusOr<RowsFile> ReadFirst(const std::string& folder,
                                   const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    auto file = ReadRows(folder + "/" + name, "");
    if (!absl::IsNotFound(file.status())) return file;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, ": none of ", absl::StrJoin(names, ", "), " is there"));
}

// The names that hold "images" or "labels" of a part.
std::vector<std::string> NamesOf(ImagePart part, const std::string& what) {
  const std::string name = absl::StrCat(part == ImagePart::kTraining ? "train-" : "t10k-", what);
  const std::string idx = name + (what == "images" ? "-idx3-ubyte" : "-idx1-ubyte");
  return {idx, idx + ".gz", name + ".npy", name + ".safetensors", name + ".csv"};
}

std::vector<std::string> CifarNames(ImagePart part) {
  if (part == ImagePart::kTest) return {kCifarTest};
  std::vector<std::string> names;
  for (int i = 1; i <= kCifarTrainingFiles; ++i) {
    names.push_back(absl::StrCat("data_batch_", i, ".bin"));
  }
  return names;
}

absl::StatusOr<ImageFiles> ReadCifar(const std::string& folder, ImagePart part) {
  std::string records;
  for (const std::string& name : CifarNames(part)) {
    const std::string path = folder + "/" + name;
    HS_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kCifarBytesMax));
    if (bytes.empty() || bytes.size() % kCifarRecordBytes != 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes.size(), " bytes are no ",
                                                     "records of ", kCifarRecordBytes,
                                                     " bytes, as CIFAR-10's batches have"));
    }
    records += bytes;
  }
  const int64_t rows = static_cast<int64_t>(records.size()) / kCifarRecordBytes;
  ImageFiles files{
      .images = {.name = folder, .rows = HostTensor::Zeros(Dtype::kU8, {rows, 3, 32, 32})},
      .labels = {.name = folder, .rows = HostTensor::Zeros(Dtype::kU8, {rows})}};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(records));
  for (int64_t row = 0; row < rows; ++row) {
    const auto record = bytes.subspan(row * kCifarRecordBytes, kCifarRecordBytes);
    files.labels.rows.bytes[row] = record[0];
    std::ranges::copy(record.subspan(1), files.images.rows.bytes.begin() + row * kCifarImageBytes);
  }
  return files;
}

}  // namespace

absl::StatusOr<ImageFiles> ReadImageFiles(const std::string& folder, ImagePart part) {
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/" + kCifarTest, ignored)) return ReadCifar(folder, part);
  ImageFiles files;
  HS_ASSIGN_OR_RETURN(files.images, ReadFirst(folder, NamesOf(part, "images")));
  HS_ASSIGN_OR_RETURN(files.labels, ReadFirst(folder, NamesOf(part, "labels")));
  return files;
}

}  // namespace hyperserve
