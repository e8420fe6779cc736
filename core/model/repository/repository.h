// A model repository on disk (DESIGN.md section 4): where files stand, digests, manifests,
// generations. Pure file work: no LibTorch, no threads. The daemon's registry and the trainer both
// use it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/repository/generation_files.h"
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
inline constexpr int64_t kCalibrationBytesMax = 4 << 20;
inline constexpr int64_t kVerdictsBytesMax = 64 << 20;
inline constexpr int64_t kGenerationMax = 999'999'999;  // nine digits in a folder's name

// kInvalidArgument names an unknown file, a missing one or one that is too large;
// kFailedPrecondition a file that does not match MANIFEST.json, where there is one.
absl::Status CheckGenerationFiles(const GenerationFiles& files);

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

// VERDICTS.json: what the gate said of each generation.
struct Verdict {
  bool passed = false;
  std::string reason;  // in words, with the numbers
};
absl::StatusOr<std::map<int64_t, Verdict>> ReadVerdicts(const std::string& hypersolver_folder);
absl::Status WriteVerdicts(const std::string& hypersolver_folder,
                           const std::map<int64_t, Verdict>& verdicts);

// calibration.json: measured error and cost of a plan (protobuf JSON of hyperserve.v1.Calibration).
struct PlanCalibration {
  std::string plan;  // canonical spelling
  double error_mean =
      0;  // relative error of z(s1) against the reference: mean over rows of |dz| / |z|
  double error_max = 0;
  double agreement = 0;  // classifiers: share of rows with the reference's label; else 0
  double nfe = 0;        // per row, mean
  double correction_evaluations = 0;
  double macs = 0;             // per row, f and g
  double seconds_per_row = 0;  // measured, at `batch` rows
  int batch = 0;
  bool wins = true;  // hypersolved: no classical plan has at most its error at at most its MACs
};
struct Calibration {
  std::string base_digest;
  std::string default_plan;  // empty: dopri5:1e-5
  std::string reference;     // the plan of the reference
  std::string device;        // where the times were measured
  int rows = 0;              // held-out rows
  std::vector<PlanCalibration> plans;
};
absl::StatusOr<Calibration> ParseCalibration(std::string_view json);
std::string PrintCalibration(const Calibration& calibration);

}  // namespace hyperserve
