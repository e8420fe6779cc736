// A model repository on disk (docs/MODEL_FORMAT.md): places of files, digests, generations. No
// LibTorch, no threads, no cache: every call reads or writes the disk and blocks on it. The
// daemon's registry and the trainer use it, from any thread. Several processes may use one
// repository at a time: writers replace files by renames, so readers never see half a file or half
// a generation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/file_lock.h"
#include "core/model/repository/generation_files.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

// The identity of a model: the SHA-256, in lower-case hexadecimal, of the 32 bytes of
// SHA-256(model.json) followed by those of SHA-256(weights.safetensors) and, where the model brings
// one, of SHA-256(field.pt2). Arguments are the bytes of the files; an empty package is none. Pure.
std::string BaseDigest(std::string_view model_json, std::string_view weights,
                       std::string_view field_package = {});

// Checks a name that becomes a folder of a repository: kInvalidArgument unless it matches
// [a-z0-9][a-z0-9_.-]{0,63}. Pure.
absl::Status CheckName(std::string_view name);

// The paths of the folders in a repository that hold a model.json, sorted. kNotFound where the
// repository cannot be read.
absl::StatusOr<std::vector<std::string>> ListModelFolders(const std::string& repository);

// <model>/hypersolvers/<method>, with the method spelled as in plans ("euler", "alpha(0.75)").
// Pure.
std::string HypersolverFolder(const std::string& model_folder, const MethodChoice& method);
// The methods that have such a folder, sorted by name; empty where there is none.
std::vector<MethodChoice> ListHypersolverMethods(const std::string& model_folder);
// The numbers of the generations in it, ascending; empty where there are none. Links do not count.
std::vector<int64_t> ListGenerations(const std::string& hypersolver_folder);

inline constexpr int64_t kModelWeightsBytesMax = int64_t{4} << 30;  // of a model's weights file

inline constexpr char kFieldPackageFile[] = "field.pt2";
inline constexpr int64_t kFieldPackageBytesMax = int64_t{4} << 30;
// The bytes of a model's field.pt2, which is code; empty where there is none. Runs nothing. Fails
// as ReadFile does, but for kNotFound.
absl::StatusOr<std::string> ReadFieldPackage(const std::string& model_folder);

// Reads a generation and checks it (CheckGenerationFiles). kNotFound where the folder cannot be
// read. kFailedPrecondition names a file that is unknown, a link or no plain file, that does not
// match MANIFEST.json, or a missing MANIFEST.json. kInvalidArgument names a file that is too large
// or another that is missing.
absl::StatusOr<GenerationFiles> ReadGeneration(const std::string& generation_folder);

// Writes a generation and returns its number: one above the highest number in the folder, in
// ACTIVE, in VERDICTS.json and in `taken`, so no number is ever used twice. A folder whose number
// is far above all others (SkipFarAbove) does not count. Writes .tmp-<uuid>, syncs it and renames
// it; takes the next number where another publisher was faster. Makes missing folders, and removes
// what others abandoned. `before` is called with the number before each attempt at the rename, with
// the folder locked; its failure ends the call.
//
// Fails as CheckGenerationFiles does, before it writes anything; as ReadActive and ReadVerdicts do;
// with kResourceExhausted after kGenerationMax; with kInternal or the code of the system where the
// disk fails. After a failure the temporary folder is removed.
absl::StatusOr<int64_t> WriteGeneration(
    const std::string& hypersolver_folder, const GenerationFiles& files, int64_t taken = 0,
    const std::function<absl::Status(int64_t number)>& before = nullptr);

// Removes from `ascending` the numbers that lie more than kGenerationGapMax above the one before
// them, of which the first is `highest`: a folder that was named 999999999 by mistake must not end
// the numbering. Pure.
inline constexpr int64_t kGenerationGapMax = 1'000'000;
void SkipFarAbove(int64_t highest, std::vector<int64_t>& ascending);

// Held while VERDICTS.json is read and replaced, and while a generation takes its number. Blocks
// for at most some seconds: kUnavailable. Not recursive. Where the file system knows no locks,
// nothing is locked.
absl::StatusOr<FileLock> LockHypersolverFolder(const std::string& hypersolver_folder);

// Removes the temporary folders and files (.tmp-..., ACTIVE.tmp-...) of processes that were killed:
// those that nobody has locked and nobody wrote to for a few seconds. Ignores failures.
void RemoveAbandoned(const std::string& folder);
// May somebody still be writing this generation? True where it is not whole (ReadGeneration) and
// its folder changed less than a few seconds ago.
bool IsBeingWritten(const std::string& generation_folder);

// The number in ACTIVE, the generation that is served; nullopt where there is no such file.
// kInvalidArgument where it holds no generation's number.
absl::StatusOr<std::optional<int64_t>> ReadActive(const std::string& hypersolver_folder);
// Replaces ACTIVE by a rename. Fails as WriteFileAtomically does. Does not check that the
// generation exists.
absl::Status WriteActive(const std::string& hypersolver_folder, int64_t generation);

}  // namespace hyperserve
