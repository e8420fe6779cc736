#include "core/io/idx.h"

#include <cstring>
#include <utility>

#include "core/base/status.h"
#include "core/io/file.h"

namespace hyperserve {
namespace {

// Far above Fashion-MNIST's largest file (47 MB), and small enough for the memory of any machine.
constexpr int64_t kIdxBytesMax = int64_t{1} << 30;
constexpr unsigned char kUnsignedByte = 0x08;
constexpr size_t kDimensionsMax = 8;

unsigned char ByteAt(std::string_view bytes, size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

absl::StatusOr<HostTensor> ParseIdx(std::string_view bytes) {
  if (bytes.size() < 4 || ByteAt(bytes, 0) != 0 || ByteAt(bytes, 1) != 0) {
    return absl::InvalidArgumentError("not an IDX file: it must begin with two zero bytes");
  }
  if (ByteAt(bytes, 2) != kUnsignedByte) {
    return absl::InvalidArgumentError(
        absl::StrCat("IDX element type ", ByteAt(bytes, 2), "; only 8, unsigned bytes, is read"));
  }
  const size_t dimensions = ByteAt(bytes, 3);
  if (dimensions < 1 || dimensions > kDimensionsMax || bytes.size() < 4 + 4 * dimensions) {
    return absl::InvalidArgumentError(absl::StrCat("IDX file of ", bytes.size(), " bytes with ",
                                                   dimensions, " dimensions; 1 to ", kDimensionsMax,
                                                   " are read, and the file must hold them"));
  }
  Shape shape;
  for (size_t d = 0; d < dimensions; ++d) {
    int64_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | ByteAt(bytes, 4 + 4 * d + i);
    shape.push_back(size);
  }
  const std::string_view data = bytes.substr(4 + 4 * dimensions);
  const std::optional<int64_t> wanted = ElementCount(shape);
  if (!wanted || *wanted != static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat("IDX shape ", ShapeText(shape), " does not fit ",
                                                   data.size(), " bytes of data"));
  }
  HostTensor tensor = HostTensor::Zeros(Dtype::kU8, std::move(shape));
  if (!data.empty()) std::memcpy(tensor.bytes.data(), data.data(), data.size());
  return tensor;
}

absl::StatusOr<HostTensor> ParseMaybeCompressed(std::string_view bytes) {
  if (!bytes.starts_with("\x1f\x8b")) return ParseIdx(bytes);
  HS_ASSIGN_OR_RETURN(const std::string plain, Gunzip(bytes, kIdxBytesMax));
  return ParseIdx(plain);
}

}  // namespace

absl::StatusOr<HostTensor> ReadIdx(const std::string& path) {
  HS_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kIdxBytesMax));
  absl::StatusOr<HostTensor> tensor = ParseMaybeCompressed(bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), path);
  return tensor;
}

}  // namespace hyperserve
