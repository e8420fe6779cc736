// VERDICTS.json: the gate's verdict on each generation in the folder of a method. Reads and writes
// the disk; no LibTorch. Any thread, but only one writer of a folder at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace hyperserve {

inline constexpr int64_t kVerdictsBytesMax = 64 << 20;  // of the file

// Final: a generation with a verdict is not examined again.
struct Verdict {
  bool passed = false;
  std::string reason;  // in words, with the measured numbers
};

// The verdicts by generation; empty where there is no file. kInvalidArgument names the file and the
// error in it.
absl::StatusOr<std::map<int64_t, Verdict>> ReadVerdicts(const std::string& hypersolver_folder);

// Replaces the file by a rename. A reason is cut to 4096 bytes, and bytes that are not printable
// ASCII become '?'. Fails as WriteFileAtomically does.
absl::Status WriteVerdicts(const std::string& hypersolver_folder,
                           const std::map<int64_t, Verdict>& verdicts);

}  // namespace hyperserve
