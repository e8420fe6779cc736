// The files of a generation as plain data: which there may be, and how large.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace hyperserve {

// A generation's files: name -> bytes. MANIFEST.json is made by WriteGeneration and checked by
// ReadGeneration.
using GenerationFiles = std::map<std::string, std::string>;

// The files that a generation may hold, and the largest that is read or written: a hostile or
// mistaken file must not fill the daemon's memory. The Admin call is limited to 64 MiB in all.
struct GenerationFileRule {
  std::string_view name;
  int64_t bytes_max;
  bool required;
};
inline constexpr char kManifestName[] = "MANIFEST.json";
inline constexpr std::array<GenerationFileRule, 5> kGenerationFileRules = {{
    {kManifestName, 64 << 10, false},  // made where a publisher sends none
    {"calibration.json", 4 << 20, false},
    {"hypersolver.json", 1 << 20, true},
    {"probe.safetensors", 64 << 20, true},
    {"weights.safetensors", 512 << 20, true},
}};

}  // namespace hyperserve
