#include "core/model/net/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {

absl::StatusOr<MemoryFile> MemoryFile::Make(const std::string& name, std::string_view bytes) {
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": no file in memory"));
  MemoryFile file(descriptor);
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::ErrnoToStatus(errno, absl::StrCat(name, ": no memory for it"));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return file;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

MemoryFile::~MemoryFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

}  // namespace hyperserve
