#include "training/optimise/checkpoints.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".safetensors";
constexpr char kFormat[] = "2";           // of the states; another one is refused
constexpr char kContents[] = "contents";  // in the file's metadata: ContentsDigest

// The files of a folder; none where there is no folder.
std::vector<fs::path> FilesIn(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    files.push_back(it->path());
  }
  return files;
}

// Of names, types, shapes and numbers.
std::string ContentsDigest(const TensorMap& state) {
  std::string digests;
  for (const auto& [name, tensor] : state) digests += Sha256(SerializeTensors({{name, tensor}}));
  return Sha256Hex(digests);
}

}  // namespace

Checkpoints::Checkpoints(Options options) : options_(std::move(options)) {
  options_.identity.insert_or_assign("format", std::string(kFormat));
  const bool there = !FilesIn(options_.folder).empty();
  if (options_.resume && !there) {
    absl::FPrintF(stderr, "--resume: no checkpoint in %s; the run begins at its start\n",
                  options_.folder);
  } else if (!options_.resume && there) {
    absl::FPrintF(stderr,
                  "a run that did not end left its checkpoints in %s: --resume goes on from them, "
                  "and this run, which begins anew, will replace them\n",
                  options_.folder);
  }
}

void Checkpoints::Identify(const std::string& what, const std::string& digest) {
  options_.identity[what] = digest;
}

std::string Checkpoints::FileOf(const std::string& fit) const {
  return absl::StrCat(options_.folder, "/", fit, kSuffix);
}

absl::StatusOr<std::optional<TensorMap>> Checkpoints::Load(const std::string& fit) {
  const std::string path = FileOf(fit);
  std::error_code error;
  // Whatever stands there but cannot be read is refused below, not passed over.
  if (!options_.resume || fs::symlink_status(path, error).type() == fs::file_type::not_found) {
    return std::optional<TensorMap>();
  }
  HS_RETURN_IF_ERROR(Lock());
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::vector<std::string> other;
  for (const auto& [what, digest] : options_.identity) {
    const auto found = file.metadata().find(what);
    if (found == file.metadata().end() || found->second != digest) other.push_back(what);
  }
  if (!other.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: the checkpoint ", path, " is of another ", absl::StrJoin(other, " and another "),
        " than this run; give what it was begun with, or leave --resume out to begin anew"));
  }
  TensorMap state = TensorsOf(file);
  const auto contents = file.metadata().find(kContents);
  if (contents == file.metadata().end() || contents->second != ContentsDigest(state)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: the checkpoint ", path,
                     " is damaged: its numbers are not those that were written; put back a copy of "
                     "it, or leave --resume out to begin anew"));
  }
  return std::optional<TensorMap>(std::move(state));
}

absl::Status Checkpoints::Lock() {
  if (lock_.has_value()) return absl::OkStatus();
  absl::StatusOr<FileLock> lock = FileLock::Take(options_.folder, std::chrono::milliseconds(0));
  if (absl::IsUnavailable(lock.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another process is at the same run, its checkpoints are in ", options_.folder));
  }
  if (absl::IsUnimplemented(lock.status())) {
    lock_.emplace(FileLock::None());
    return absl::OkStatus();
  }
  HS_RETURN_IF_ERROR(lock.status());
  lock_.emplace(*std::move(lock));
  return absl::OkStatus();
}

absl::Status Checkpoints::Write(const std::string& fit, const TensorMap& state) {
  if (!lock_.has_value()) {
    std::error_code error;
    fs::create_directories(options_.folder, error);
    HS_RETURN_IF_ERROR(Lock());
    for (const fs::path& old : FilesIn(options_.folder)) {
      const bool whole = old.extension() == kSuffix;  // else a process was killed amid its write
      if (!options_.resume || !whole) fs::remove(old, error);
    }
  }
  std::map<std::string, std::string> metadata = options_.identity;
  metadata[kContents] = ContentsDigest(state);
  return WriteFileAtomically(FileOf(fit), SerializeTensors(state, metadata));
}

bool Checkpoints::Save(const std::string& fit, const TensorMap& state) {
  saved_ = Clock::now();
  const absl::Status status = Write(fit, state);
  if (!status.ok() && !failed_) {
    failed_ = true;
    absl::FPrintF(stderr, "a checkpoint could not be written, those before stay: %s\n",
                  std::string(status.message()));
  }
  return status.ok();
}

void Checkpoints::Remove() {
  std::error_code ignored;
  if (!Lock().ok()) return;  // there is none, or another process is at it
  fs::remove_all(options_.folder, ignored);
  fs::remove(fs::path(options_.folder).parent_path(), ignored);  // unless it holds other runs
}

}  // namespace hyperserve
