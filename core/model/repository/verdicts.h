// VERDICTS.json: what the gate said of each generation of a hypersolver folder. Pure file work.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace hyperserve {

inline constexpr int64_t kVerdictsBytesMax = 64 << 20;  // of the file

struct Verdict {
  bool passed = false;
  std::string reason;  // in words, with the numbers
};

// By generation; empty where there is no file. kInvalidArgument names the file and what is wrong in
// it.
absl::StatusOr<std::map<int64_t, Verdict>> ReadVerdicts(const std::string& hypersolver_folder);

// Written by rename. Bytes of a reason that are not printable ASCII become '?'.
absl::Status WriteVerdicts(const std::string& hypersolver_folder,
                           const std::map<int64_t, Verdict>& verdicts);

}  // namespace hyperserve
