// Whole files: read with a limit on their size, and written so that a reader never sees half a
// file. Also digests and decompression. All functions may be called from any thread. They block on
// the disk.
//
// Failures of the operating system keep its code (kNotFound, kPermissionDenied, ...) and name the
// path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// The bytes of a regular file; links are followed. kNotFound where there is none; kInvalidArgument
// where it is no regular file or is larger than max_bytes (the message names both sizes). Never
// waits for the writer of a FIFO.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// Writes `path`.tmp-<unique> in the same folder, syncs it, renames it to `path` and syncs the
// folder. Replaces an existing file. After a failure before the rename, `path` is unchanged and the
// temporary file is removed. A process that is killed may leave the temporary file behind. What is
// there and no regular file, as a FIFO that is being read or a device, is written to as it is.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// The SHA-256 digest as 64 lower-case hexadecimal digits, and as its 32 bytes.
std::string Sha256Hex(std::string_view bytes);
// Never fail.
std::string Sha256(std::string_view bytes);

// Decompresses one gzip or zlib stream. kInvalidArgument where it is damaged or cut short, where
// bytes follow it, or where it holds more than max_bytes.
absl::StatusOr<std::string> Gunzip(std::string_view compressed, int64_t max_bytes);

}  // namespace hyperserve
