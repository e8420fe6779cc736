// The files of one generation as bytes: their names, their size limits, and MANIFEST.json, which
// holds the size and SHA-256 of each. Pure: no access to the disk; any thread.
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

// The bytes of each file by name. WriteGeneration makes MANIFEST.json; ReadGeneration checks it.
using GenerationFiles = std::map<std::string, std::string>;

inline constexpr char kManifestName[] = "MANIFEST.json";

// The files that a generation may hold. The size limits keep a hostile or mistaken file from
// filling the daemon's memory. One Admin call holds at most 64 MiB.
struct GenerationFileRule {
  std::string_view name;
  int64_t bytes_max;
  bool required;
};
inline constexpr std::array<GenerationFileRule, 5> kGenerationFileRules = {{
    {kManifestName, 64 << 10, false},  // WriteGeneration makes it
    {"calibration.json", kCalibrationBytesMax, false},
    {"hypersolver.json", 1 << 20, true},
    {"probe.safetensors", 64 << 20, true},
    {"weights.safetensors", 512 << 20, true},
}};

// The rule of a file; null: no such file belongs in a generation.
const GenerationFileRule* FindGenerationFileRule(std::string_view name);
std::string GenerationFileNames();  // all names, for error messages

// kInvalidArgument names a file that is unknown, missing or too large. kFailedPrecondition names a
// file that does not match MANIFEST.json, where the files hold one. Contents are not parsed.
absl::Status CheckGenerationFiles(const GenerationFiles& files);

// MANIFEST.json for all files except itself.
std::string PrintManifest(const GenerationFiles& files);

}  // namespace hyperserve
