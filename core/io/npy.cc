#include "core/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr size_t kVersionAt = 6, kLengthAt = 8;
constexpr size_t kDimensionsMax = 8;

// What the header says. `kind` and `size` are those of descr: 'f', 'i' or 'u', and bytes.
struct Header {
  char kind = 0;
  size_t size = 0;
  bool swapped = false;  // the bytes of an element, big-endian
  bool fortran = false;  // the first index runs fastest
  Shape shape;
};

absl::Status Damaged(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("NPY file: ", Absl(what)));
}

// The text behind 'key': in the header's dictionary, without blanks in front; empty: no such key.
std::string_view After(std::string_view dictionary, std::string_view key) {
  const size_t at = dictionary.find(key);
  if (at == dictionary.npos) return {};
  std::string_view rest = dictionary.substr(at + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(": "), rest.size()));
  return rest;
}

absl::Status ReadDescr(std::string_view text, Header& header) {
  const size_t end = text.size() > 1 ? text.find(text[0], 1) : text.npos;
  if (text.empty() || (text[0] != '\'' && text[0] != '"') || end == text.npos) {
    return Damaged("descr is no plain type; an array of records is not read");
  }
  const std::string_view descr = text.substr(1, end - 1);
  constexpr std::string_view kKnown[] = {"f2", "f4", "f8", "u1", "i1",
                                         "i2", "i4", "i8", "u2", "u4"};
  const bool ordered = descr.size() == 3 && std::string_view("<>|=").find(descr[0]) != descr.npos;
  if (!ordered || std::ranges::count(kKnown, descr.substr(1)) == 0) {
    return Damaged(absl::StrCat("elements of type '", absl::CHexEscape(Absl(descr.substr(0, 20))),
                                "'; floats of 2, 4 or 8 bytes and integers are read"));
  }
  header.kind = descr[1];
  header.size = static_cast<size_t>(descr[2] - '0');
  header.swapped = descr[0] == '>';
  return absl::OkStatus();
}

absl::Status ReadShape(std::string_view text, Header& header) {
  if (!text.starts_with("(") || text.find(')') == text.npos) return Damaged("it has no shape");
  text = text.substr(1, text.find(')') - 1);
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
    if (text.empty()) return absl::OkStatus();
    int64_t size = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0 || header.shape.size() == kDimensionsMax) {
      return Damaged(absl::StrCat("its shape is not 0 to ", kDimensionsMax, " sizes"));
    }
    header.shape.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
}

// The number of bytes of the header in `version`, and where the header begins.
std::optional<std::pair<size_t, size_t>> HeaderPlace(std::string_view bytes) {
  const char version = bytes.size() > kVersionAt ? bytes[kVersionAt] : '\0';
  if (version < 1 || version > 3) return std::nullopt;
  const size_t width = version == 1 ? 2 : 4;
  if (bytes.size() < kLengthAt + width) return std::nullopt;
  size_t length = 0;
  for (size_t i = width; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(bytes[kLengthAt + i]);
  }
  const size_t begin = kLengthAt + width;
  if (length > bytes.size() - begin) return std::nullopt;
  return std::pair(begin, length);
}

absl::StatusOr<Header> ReadHeader(std::string_view dictionary) {
  Header header;
  HS_RETURN_IF_ERROR(ReadDescr(After(dictionary, "'descr'"), header));
  HS_RETURN_IF_ERROR(ReadShape(After(dictionary, "'shape'"), header));
  header.fortran = After(dictionary, "'fortran_order'").starts_with("True");
  return header;
}

// The places of the elements in the file, for the elements in row-major order.
class Places {
 public:
  explicit Places(const Header& header) : shape_(header.shape), strides_(shape_.size(), 1) {
    const size_t n = shape_.size();
    for (size_t i = 1; i < n; ++i) {
      if (header.fortran) strides_[i] = strides_[i - 1] * shape_[i - 1];
      if (!header.fortran) strides_[n - 1 - i] = strides_[n - i] * shape_[n - i];
    }
    index_.assign(n, 0);
  }
  int64_t Next() {
    int64_t place = 0;
    for (size_t i = 0; i < shape_.size(); ++i) place += index_[i] * strides_[i];
    for (size_t i = shape_.size(); i-- > 0 && ++index_[i] == shape_[i];) index_[i] = 0;
    return place;
  }

 private:
  const Shape& shape_;
  std::vector<int64_t> strides_, index_;
};

int64_t WholeNumber(const std::byte* element, const Header& header) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, header.size);
  if (header.kind == 'u' || header.size == 8) return static_cast<int64_t>(bits);
  const int unused = 64 - 8 * static_cast<int>(header.size);
  return static_cast<int64_t>(bits << unused) >> unused;  // with the sign
}

Dtype DtypeOf(const Header& header) {
  if (header.kind == 'f') {
    return header.size == 2 ? Dtype::kF16 : header.size == 4 ? Dtype::kF32 : Dtype::kF64;
  }
  return header.kind == 'u' && header.size == 1 ? Dtype::kU8 : Dtype::kI64;
}

}  // namespace

absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes) {
  const auto place = HeaderPlace(bytes);
  if (!bytes.starts_with(kNpyMagic) || !place) return Damaged("its header is damaged or cut short");
  HS_ASSIGN_OR_RETURN(const Header header, ReadHeader(bytes.substr(place->first, place->second)));
  const std::string_view data = bytes.substr(place->first + place->second);
  const std::optional<int64_t> elements = ElementCount(header.shape);
  if (!elements || static_cast<size_t>(*elements) > data.size() ||
      static_cast<size_t>(*elements) * header.size != data.size()) {
    return Damaged(absl::StrCat("shape ", ShapeText(header.shape), " of elements of ", header.size,
                                " bytes does not fit ", data.size(), " bytes of data"));
  }
  HostTensor tensor = HostTensor::Zeros(DtypeOf(header), header.shape);
  const bool widened = tensor.dtype == Dtype::kI64;
  Places places(header);
  std::array<std::byte, 8> element;
  for (int64_t i = 0; i < *elements; ++i) {
    std::memcpy(element.data(), data.data() + places.Next() * static_cast<int64_t>(header.size),
                header.size);
    if (header.swapped) std::reverse(element.begin(), element.begin() + header.size);
    if (widened) {
      tensor.as<int64_t>()[i] = WholeNumber(element.data(), header);
    } else {
      std::memcpy(tensor.bytes.data() + i * static_cast<int64_t>(header.size), element.data(),
                  header.size);
    }
  }
  return tensor;
}

}  // namespace hyperserve
