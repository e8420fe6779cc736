// Whole files: read with a limit, written so that a reader never sees half of one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// kNotFound, or kInvalidArgument where the file is larger than max_bytes (the message names both
// sizes).
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// Writes `path`.tmp-<unique>, syncs it and renames it over `path`; the folder is synced too.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// Lower-case hex.
std::string Sha256Hex(std::string_view bytes);
// The 32 raw bytes.
std::string Sha256(std::string_view bytes);

// gzip or zlib to plain bytes; kInvalidArgument for damage or for more than max_bytes.
absl::StatusOr<std::string> Gunzip(std::string_view compressed, int64_t max_bytes);

}  // namespace hyperserve
