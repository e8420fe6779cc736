#include "core/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

constexpr std::chrono::milliseconds kPause(2);

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& path,
                                        std::chrono::milliseconds patience) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  FileLock lock(fd);
  for (auto left = patience;; left -= kPause) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const bool unknown = errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS;
      return absl::Status(
          unknown ? absl::StatusCode::kUnimplemented : absl::ErrnoToStatusCode(errno),
          absl::StrCat(path, ": cannot lock"));
    }
    if (left <= std::chrono::milliseconds(0)) {
      return absl::UnavailableError(absl::StrCat(path, ": another process has locked it for ",
                                                 patience.count(), " ms; try again"));
    }
    std::this_thread::sleep_for(kPause);
  }
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace hyperserve
