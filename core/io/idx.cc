#include "core/io/idx.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr size_t kDimensionsMax = 8;

unsigned char ByteAt(std::string_view bytes, size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

std::optional<Dtype> DtypeOfCode(unsigned char code) {
  switch (code) {
    case 0x08:
      return Dtype::kU8;
    case 0x0D:
      return Dtype::kF32;
    case 0x0E:
      return Dtype::kF64;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<HostTensor> ParseIdx(std::string_view bytes) {
  if (bytes.size() < 4 || ByteAt(bytes, 0) != 0 || ByteAt(bytes, 1) != 0) {
    return absl::InvalidArgumentError("not an IDX file: it must begin with two zero bytes");
  }
  const std::optional<Dtype> dtype = DtypeOfCode(ByteAt(bytes, 2));
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("IDX element type ", ByteAt(bytes, 2),
                     "; 8 (unsigned bytes), 13 (floats) and 14 (doubles) are read"));
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
  const size_t element = DtypeSize(*dtype);
  const std::optional<int64_t> wanted = ElementCount(shape);
  if (!wanted || data.size() % element != 0 ||
      *wanted != static_cast<int64_t>(data.size() / element)) {
    return absl::InvalidArgumentError(absl::StrCat("IDX shape ", ShapeText(shape), " does not fit ",
                                                   data.size(), " bytes of data"));
  }
  HostTensor tensor = HostTensor::Zeros(*dtype, std::move(shape));
  // Big-endian elements: each is written from its last byte on.
  for (size_t i = 0; i < data.size(); ++i) {
    tensor.bytes[i] = std::byte{ByteAt(data, i - i % element + element - 1 - i % element)};
  }
  return tensor;
}

}  // namespace hyperserve
