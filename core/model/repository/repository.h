// A model repository on disk (DESIGN.md section 4): where files stand, digests, manifests,
// generations. Pure file work: no LibTorch, no threads. The daemon's registry and the trainer both
// use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/repository/generation_files.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

// Lower-case hex SHA-256 of the raw SHA-256 of model.json followed by that of weights.safetensors,
// files as on disk.
std::string BaseDigest(std::string_view model_json, std::string_view weights);

// Names within a repository that may become folders: [a-z0-9][a-z0-9_.-]{0,63}. kInvalidArgument
// otherwise.
absl::Status CheckName(std::string_view name);

// The folders of a repository that hold a model.json, sorted.
absl::StatusOr<std::vector<std::string>> ListModelFolders(const std::string& repository);

// <model>/hypersolvers/<method>: method spelled as in plans ("euler", "alpha(0.75)").
std::string HypersolverFolder(const std::string& model_folder, const MethodChoice& method);
std::vector<MethodChoice> ListHypersolverMethods(const std::string& model_folder);
std::vector<int64_t> ListGenerations(const std::string& hypersolver_folder);  // ascending

inline constexpr int64_t kModelWeightsBytesMax = int64_t{4} << 30;

// Reads a generation and checks every file against MANIFEST.json (size and SHA-256):
// kFailedPrecondition names the file, also where it is a symbolic link or no plain file.
absl::StatusOr<GenerationFiles> ReadGeneration(const std::string& generation_folder);

// Writes .tmp-<uuid>, syncs it, renames it to the next integer (1 + the highest ever seen in the
// folder, in ACTIVE or in VERDICTS, and above `taken`), again if that is taken. Returns the number.
// Safe beside other publishers, in this process or another. Removes what killed ones left more than
// an hour ago. Fails as CheckGenerationFiles does.
absl::StatusOr<int64_t> WriteGeneration(const std::string& hypersolver_folder,
                                        const GenerationFiles& files, int64_t taken = 0);

// ACTIVE: nullopt where there is none. Written by rename.
absl::StatusOr<std::optional<int64_t>> ReadActive(const std::string& hypersolver_folder);
absl::Status WriteActive(const std::string& hypersolver_folder, int64_t generation);

}  // namespace hyperserve
