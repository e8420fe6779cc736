#include "core/io/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/io/write_failure.h"

namespace hyperserve {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status ErrnoStatus(const std::string& path, absl::string_view doing) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot ", doing));
}

absl::Status TooLarge(const std::string& path, int64_t size, int64_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", size, " bytes, the limit is ", max_bytes, " bytes"));
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteFailure(errno, path, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(const std::string& path, std::string_view bytes) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0) return WriteFailure(errno, path, "create");
  // Says that its writer lives (RemoveAbandoned). Without locks the age of the file must do.
  (void)flock(file.get(), LOCK_EX | LOCK_NB);
  HS_RETURN_IF_ERROR(WriteAll(file.get(), bytes, path));
  return fsync(file.get()) == 0 ? absl::OkStatus() : WriteFailure(errno, path, "sync");
}

// For a terminal, a pipe or a device: a rename would put a file in its place.
absl::Status WriteInto(const std::string& path, std::string_view bytes) {
  // Not blocking: the open of a FIFO would wait for a reader that never comes.
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return WriteFailure(errno, path, "open");
  if (fcntl(file.get(), F_SETFL, 0) != 0) return WriteFailure(errno, path, "open");
  return WriteAll(file.get(), bytes, path);
}

absl::Status SyncFolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? std::string(1, '.') : parent;
  const Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return ErrnoStatus(folder, "open");
  return fsync(descriptor.get()) == 0 ? absl::OkStatus() : WriteFailure(errno, folder, "sync");
}

// Unique wherever the folder is mounted. Process numbers are not: every container has a process 1.
std::string TemporaryName(const std::string& path) {
  std::random_device device;
  return absl::StrCat(path, ".tmp-", absl::Hex(device(), absl::kZeroPad8),
                      absl::Hex(device(), absl::kZeroPad8));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  // Not blocking: the open of a FIFO would wait for a writer that never comes.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(path, "open");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  if (info.st_size > max_bytes) return TooLarge(path, info.st_size, max_bytes);
  // With room for one byte more than stat saw, a read that returns 0 marks the end of the file,
  // even if the file has grown.
  std::string bytes(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t used = 0;
  while (true) {
    const ssize_t got = read(file.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(path, "read");
    used += static_cast<size_t>(got);
    if (static_cast<int64_t>(used) > max_bytes) {
      return TooLarge(path, static_cast<int64_t>(used), max_bytes);
    }
    if (got == 0) break;
    if (used == bytes.size()) bytes.resize(2 * bytes.size());
  }
  bytes.resize(used);
  return bytes;
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  if (struct stat info{};
      stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    return WriteInto(path, bytes);
  }
  const std::string temporary = TemporaryName(path);
  absl::Status status = WriteAndSync(temporary, bytes);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = WriteFailure(errno, path, "rename to it");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncFolderOf(path);
}

std::string Sha256(std::string_view bytes) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
             EVP_sha256(), nullptr);
  digest.resize(size);
  return digest;
}

std::string Sha256Hex(std::string_view bytes) { return absl::BytesToHexString(Sha256(bytes)); }

absl::StatusOr<std::string> Gunzip(std::string_view compressed, int64_t max_bytes) {
  constexpr int kGzipOrZlib = 15 + 32;  // largest window, header recognised by content
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) return absl::InternalError("zlib: no memory");
  std::string plain;
  std::array<char, 1 << 16> chunk;
  std::string_view rest = compressed;
  int code = Z_OK;
  while (code == Z_OK) {
    if (stream.avail_in == 0) {
      const size_t take = std::min<size_t>(rest.size(), 1 << 30);  // zlib counts in 32 bits
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream.avail_in = static_cast<uInt>(take);
      rest.remove_prefix(take);
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    code = inflate(&stream, Z_NO_FLUSH);
    plain.append(chunk.data(), chunk.size() - stream.avail_out);
    if (static_cast<int64_t>(plain.size()) > max_bytes) break;
  }
  const bool trailing = stream.avail_in > 0 || !rest.empty();
  inflateEnd(&stream);
  if (static_cast<int64_t>(plain.size()) > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed data holds more than the limit of ", max_bytes, " bytes"));
  }
  if (code != Z_STREAM_END || trailing) {
    return absl::InvalidArgumentError("compressed data is damaged or cut short");
  }
  return plain;
}

}  // namespace hyperserve
