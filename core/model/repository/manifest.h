// MANIFEST.json of a generation: the size and SHA-256 of each of its files. Internal to core/model;
// see repository.h.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/model/repository/generation_files.h"

namespace hyperserve {

// The manifest of all files but MANIFEST.json itself.
std::string PrintManifest(const GenerationFiles& files);

// kFailedPrecondition names the file that differs from files["MANIFEST.json"], is not in it or not
// there.
absl::Status CheckManifest(const GenerationFiles& files);

}  // namespace hyperserve
