// The files of one generation as bytes: which there may be, how large, and MANIFEST.json, which
// holds the size and SHA-256 of each. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/model/repository/calibration.h"

namespace hyperserve {

inline constexpr int64_t kGenerationMax = 999'999'999;  // nine digits in a folder's name

// A generation's files: name -> bytes. MANIFEST.json is made by WriteGeneration and checked by
// ReadGeneration.
using GenerationFiles = std::map<std::string, std::string>;

inline constexpr char kManifestName[] = "MANIFEST.json";

// The files that a generation may hold, and the largest that is read or written: a hostile or
// mistaken file must not fill the daemon's memory. The Admin call is limited to 64 MiB in all.
struct GenerationFileRule {
  std::string_view name;
  int64_t bytes_max;
  bool required;
};
inline constexpr std::array<GenerationFileRule, 5> kGenerationFileRules = {{
    {kManifestName, 64 << 10, false},  // made where a publisher sends none
    {"calibration.json", kCalibrationBytesMax, false},
    {"hypersolver.json", 1 << 20, true},
    {"probe.safetensors", 64 << 20, true},
    {"weights.safetensors", 512 << 20, true},
}};

// Null: a generation holds no such file.
const GenerationFileRule* FindGenerationFileRule(std::string_view name);
std::string GenerationFileNames();  // all that are known, for error texts

// kInvalidArgument names an unknown file, a missing one or one that is too large;
// kFailedPrecondition a file that does not match MANIFEST.json, where there is one.
absl::Status CheckGenerationFiles(const GenerationFiles& files);

// The manifest of all files but MANIFEST.json itself.
std::string PrintManifest(const GenerationFiles& files);

}  // namespace hyperserve
