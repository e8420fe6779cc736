// Bytes as a file that stands in memory alone, for libraries that take a path. It leaves nothing
// behind, however the process ends.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// Moves, never copies. The system frees the memory when the object and all who opened the path are
// done with it.
class MemoryFile {
 public:
  // Copies the bytes. `name` is for people who look at the process. Fails with the code of the
  // system where it gives no file or no memory.
  static absl::StatusOr<MemoryFile> Make(const std::string& name, std::string_view bytes);
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) = delete;
  ~MemoryFile();

  // Valid in this process, for the life of this object.
  std::string path() const;

 private:
  explicit MemoryFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;  // -1: moved from
};

}  // namespace hyperserve
