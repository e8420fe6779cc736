#include "core/io/write_failure.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {

absl::Status WriteFailure(int error, const std::string& path, std::string_view doing) {
  const std::string what = absl::StrCat(path, ": cannot ", Absl(doing));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EACCES:
    case EPERM:
      return absl::FailedPreconditionError(
          absl::StrCat(absl::ErrnoToStatus(error, what).message(),
                       "; the folder must have room, and this user must be able to write it"));
    default:
      return absl::ErrnoToStatus(error, what);
  }
}

}  // namespace hyperserve
