// A lock on a file or folder that processes of one machine agree on. It ends with the object, and
// with its process, however that ends. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace hyperserve {

// Moves, never copies. One thread at a time uses an object; two objects of one process exclude each
// other as those of two processes do.
class FileLock {
 public:
  // Locks `path`, which must exist; blocks for at most `patience` while another holds the lock.
  // kUnavailable: another holds it. kUnimplemented: the file system knows no locks. Else the code
  // of the system.
  static absl::StatusOr<FileLock> Take(const std::string& path, std::chrono::milliseconds patience);

  // Locks nothing: for file systems that know no locks.
  static FileLock None() { return FileLock(-1); }

  // The object that is moved from holds nothing. The destructor gives the lock back; the file
  // stays.
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;  // -1: none
};

}  // namespace hyperserve
