#include "core/io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/safetensors_header.h"

namespace hyperserve {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data is used as it is stored");

constexpr uint64_t kHeaderBytesMax = 16 << 20;  // room for 100,000 tensors
constexpr size_t kLengthBytes = 8;
constexpr size_t kDataAlignment = 8;

// Checks that the ranges cover the data exactly, in any order, and that each fits its dtype and
// shape.
absl::Status CheckRanges(const SafetensorsHeader& header, size_t data_bytes) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, entry] : header.tensors) {
    int64_t wanted = ElementCount(entry.shape).value_or(-1);
    if (wanted < 0 || __builtin_mul_overflow(wanted, int64_t(DtypeSize(entry.dtype)), &wanted) ||
        entry.begin > entry.end || entry.end - entry.begin != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "': data_offsets [", entry.begin, ", ", entry.end,
                       "] do not fit ", Absl(DtypeName(entry.dtype)), " ", ShapeText(entry.shape)));
    }
    ranges.emplace_back(entry.begin, entry.end);
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      return absl::InvalidArgumentError(
          absl::StrCat(begin < covered ? "tensors overlap" : "there is a hole between tensors",
                       " at byte ", std::min(begin, covered), " of the data"));
    }
    covered = end;
  }
  if (covered != static_cast<int64_t>(data_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors need ", covered, " bytes of data, the file has ", data_bytes));
  }
  return absl::OkStatus();
}

uint64_t ReadLength(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  return length;
}

// A read-only mapping of a whole file, or nothing.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (size_ > 0) munmap(data_, size_);
  }

  absl::Status Map(const std::string& path) {
    // Not blocking: the open of a FIFO would wait for a writer that never comes.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
    const absl::Status status = MapDescriptor(fd, path);
    close(fd);
    return status;
  }

  std::span<const std::byte> bytes() const { return {static_cast<std::byte*>(data_), size_}; }

 private:
  absl::Status MapDescriptor(int fd, const std::string& path) {
    struct stat info {};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
    }
    if (info.st_size == 0) return absl::OkStatus();  // an empty mapping is not allowed
    void* const data =
        mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot map"));
    data_ = data;
    size_ = static_cast<size_t>(info.st_size);
    return absl::OkStatus();
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

std::string_view MistakenFile(std::string_view bytes) {
  if (bytes.starts_with("PK\x03\x04")) {
    return "this is a zip, as torch.save and numpy.savez write: save weights with "
           "safetensors.torch.save_file or hyperserve.export, an array with numpy.save";
  }
  if (bytes.starts_with("version https://git-lfs")) {
    return "this is a pointer of Git LFS, not the file: run `git lfs pull`";
  }
  if (bytes.starts_with("\x1f\x8b")) return "this is gzip: unpack it first";
  if (bytes.starts_with("\x80")) return "this is a pickle, which is never read";
  return "";
}

struct SafetensorsFile::Contents {
  Mapping mapping;    // the bytes of Open
  std::string owned;  // the bytes of Parse
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string> metadata;

  absl::Status Read(std::span<const std::byte> bytes);
};

absl::Status SafetensorsFile::Contents::Read(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a safetensors file: ", bytes.size(), " bytes"));
  }
  const uint64_t length = ReadLength(bytes);
  if (length > kHeaderBytesMax || length > bytes.size() - kLengthBytes) {
    // Only here: a header of, say, 128 bytes begins with the byte that begins a pickle.
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const std::string_view mistaken = MistakenFile(text); !mistaken.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("not a safetensors file: ", Absl(mistaken)));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("not a safetensors file: it announces a header of ", length, " bytes, has ",
                     bytes.size() - kLengthBytes, " and may have ", kHeaderBytesMax));
  }
  const std::span<const std::byte> json = bytes.subspan(kLengthBytes, length);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);
  HS_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      ParseSafetensorsHeader({reinterpret_cast<const char*>(json.data()), json.size()}));
  HS_RETURN_IF_ERROR(CheckRanges(header, data.size()));
  for (auto& [name, entry] : header.tensors) {
    tensors.emplace(
        name, TensorView{.dtype = entry.dtype,
                         .shape = std::move(entry.shape),
                         .bytes = data.subspan(static_cast<size_t>(entry.begin),
                                               static_cast<size_t>(entry.end - entry.begin))});
  }
  metadata = std::move(header.metadata);
  return absl::OkStatus();
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Contents> contents)
    : contents_(std::move(contents)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto contents = std::make_unique<Contents>();
  HS_RETURN_IF_ERROR(contents->mapping.Map(path));
  HS_RETURN_IF_ERROR(Annotate(contents->Read(contents->mapping.bytes()), path));
  return SafetensorsFile(std::move(contents));
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::string bytes) {
  auto contents = std::make_unique<Contents>();
  contents->owned = std::move(bytes);
  HS_RETURN_IF_ERROR(contents->Read(std::as_bytes(std::span(contents->owned))));
  return SafetensorsFile(std::move(contents));
}

const std::map<std::string, TensorView, std::less<>>& SafetensorsFile::tensors() const {
  return contents_->tensors;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return contents_->metadata;
}

std::string_view SafetensorsFile::bytes() const {
  if (!contents_->owned.empty()) return contents_->owned;
  const std::span<const std::byte> mapped = contents_->mapping.bytes();
  return {reinterpret_cast<const char*>(mapped.data()), mapped.size()};
}

void SafetensorsFile::Release(std::span<const std::byte> part) {
  if (contents_->owned.empty()) return;  // mapped pages are the system's anyway
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

absl::StatusOr<TensorView> SafetensorsFile::Find(std::string_view name) const {
  const auto found = contents_->tensors.find(name);
  if (found != contents_->tensors.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "no tensor '", Absl(name), "'; there are ",
      absl::StrJoin(contents_->tensors, ", ",
                    [](std::string* out, const auto& entry) { out->append(entry.first); })));
}

std::string SerializeSafetensors(const std::map<std::string, TensorView, std::less<>>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  // The format allows no padding between tensors. With wide elements first, each tensor is aligned
  // to its elements without any.
  std::vector<std::pair<std::string_view, const TensorView*>> order;
  for (const auto& [name, view] : tensors) order.emplace_back(name, &view);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return DtypeSize(a.second->dtype) > DtypeSize(b.second->dtype);
  });
  SafetensorsHeader header{.metadata = metadata};
  std::string data;
  for (const auto& [name, view] : order) {
    const int64_t begin = static_cast<int64_t>(data.size());
    data.append(reinterpret_cast<const char*>(view->bytes.data()), view->bytes.size());
    header.tensors.emplace(name, SafetensorsEntry{.dtype = view->dtype,
                                                  .shape = view->shape,
                                                  .begin = begin,
                                                  .end = static_cast<int64_t>(data.size())});
  }
  std::string json = PrintSafetensorsHeader(header);
  json.resize((json.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  std::string file;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    file += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  }
  return file + json + data;
}

}  // namespace hyperserve
