#include "core/model/repository/repository.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/file_lock.h"
#include "core/io/write_failure.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/method.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;

constexpr char kActiveName[] = "ACTIVE";
constexpr char kTemporaryPrefix[] = ".tmp-";
constexpr int64_t kActiveBytesMax = 32;
// Who makes a file and locks it, or copies a folder file by file, pauses no longer than this.
constexpr std::chrono::seconds kSettled(5);
constexpr std::chrono::seconds kLockPatience(10);  // others hold it for milliseconds

// Generations, ACTIVE: [1-9][0-9]{0,8}.
std::optional<int64_t> ParseGeneration(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || number < 1 || number > kGenerationMax || text[0] == '0') return std::nullopt;
  return number;
}

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return WriteFailure(errno, path, "open");
  const int failed = fsync(fd);
  close(fd);
  return failed != 0 ? WriteFailure(errno, path, "sync") : absl::OkStatus();
}

// Makes the folder and its missing parents, and syncs every folder that gained an entry.
absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return absl::OkStatus();
  const std::string parent = fs::path(folder).parent_path().string();
  if (!parent.empty() && parent != folder) HS_RETURN_IF_ERROR(MakeFolders(parent));
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return WriteFailure(errno, folder, "make the folder");
  return parent.empty() ? absl::OkStatus() : SyncPath(parent);
}

bool ChangedWithin(const fs::path& path, std::chrono::seconds time) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(path, error);
  return !error && written > fs::file_time_type::clock::now() - time;
}

// Nobody has locked it. On a file system without locks, it must be an hour old.
bool IsAbandoned(const fs::path& path) {
  if (ChangedWithin(path, kSettled)) return false;
  const absl::StatusOr<FileLock> lock = FileLock::Take(path.string(), std::chrono::milliseconds(0));
  if (absl::IsUnimplemented(lock.status())) return !ChangedWithin(path, std::chrono::hours(1));
  return lock.ok();
}

std::string Uuid() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

// The generation numbers among the names of the folder's entries, ascending.
std::vector<int64_t> NumberedEntries(const std::string& folder,
                                     bool (*counts)(const fs::directory_entry&)) {
  std::error_code error;
  std::vector<int64_t> numbers;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto number = ParseGeneration(it->path().filename().string());
    if (number.has_value() && counts(*it)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::StatusOr<int64_t> NextGeneration(const std::string& hypersolver_folder, int64_t highest) {
  // Every entry takes its number, also a link or a plain file.
  std::vector<int64_t> taken =
      NumberedEntries(hypersolver_folder, [](const fs::directory_entry&) { return true; });
  HS_ASSIGN_OR_RETURN(const std::optional<int64_t> active, ReadActive(hypersolver_folder));
  HS_ASSIGN_OR_RETURN(const auto verdicts, ReadVerdicts(hypersolver_folder));
  highest = std::max(highest, active.value_or(0));
  if (!verdicts.empty()) highest = std::max(highest, verdicts.rbegin()->first);
  SkipFarAbove(highest, taken);
  if (!taken.empty()) highest = std::max(highest, taken.back());
  if (highest >= kGenerationMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(hypersolver_folder, ": generation ", kGenerationMax, " is the last number"));
  }
  return highest + 1;
}

// Renames `temporary` to the next free number. rename() never replaces a folder with contents, and
// a generation always has contents. So if two publishers want one number, one of them tries again.
absl::StatusOr<int64_t> TakeNumber(const std::string& hypersolver_folder,
                                   const std::string& temporary, int64_t taken,
                                   const std::function<absl::Status(int64_t)>& before) {
  HS_ASSIGN_OR_RETURN(const FileLock lock, LockHypersolverFolder(hypersolver_folder));
  while (true) {
    HS_ASSIGN_OR_RETURN(const int64_t number, NextGeneration(hypersolver_folder, taken));
    if (before) HS_RETURN_IF_ERROR(before(number));
    const std::string target = absl::StrCat(hypersolver_folder, "/", number);
    if (rename(temporary.c_str(), target.c_str()) == 0) {
      HS_RETURN_IF_ERROR(SyncPath(hypersolver_folder));
      return number;
    }
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
      return WriteFailure(errno, temporary, "rename");
    }
  }
}

absl::Status WriteFiles(const std::string& temporary, const GenerationFiles& files) {
  for (const auto& [name, bytes] : files) {
    if (name != kManifestName) {
      HS_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(temporary, "/", name), bytes));
    }
  }
  return WriteFileAtomically(absl::StrCat(temporary, "/", kManifestName), PrintManifest(files));
}

}  // namespace

std::string BaseDigest(std::string_view model_json, std::string_view weights,
                       std::string_view field_package) {
  return Sha256Hex(absl::StrCat(Sha256(model_json), Sha256(weights),
                                field_package.empty() ? "" : Sha256(field_package)));
}

absl::StatusOr<std::string> ReadFieldPackage(const std::string& model_folder) {
  absl::StatusOr<std::string> bytes =
      ReadFile(absl::StrCat(model_folder, "/", kFieldPackageFile), kFieldPackageBytesMax);
  if (absl::IsNotFound(bytes.status())) return std::string();
  return bytes;
}

absl::Status CheckName(std::string_view name) {
  const auto lower_or_digit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  const bool fits = !name.empty() && name.size() <= 64 && lower_or_digit(name[0]) &&
                    std::all_of(name.begin(), name.end(), [&](char c) {
                      return lower_or_digit(c) || c == '_' || c == '.' || c == '-';
                    });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("name '", absl::string_view(name.data(), std::min<size_t>(name.size(), 80)),
                   "' is not 1 to 64 characters of a-z, 0-9, '_', '.', '-' that begin with a "
                   "letter or digit"));
}

absl::StatusOr<std::vector<std::string>> ListModelFolders(const std::string& repository) {
  std::error_code error;
  std::vector<std::string> folders;
  for (fs::directory_iterator it(repository, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (fs::exists(it->path() / "model.json", ignored)) folders.push_back(it->path().string());
  }
  if (error) return absl::NotFoundError(absl::StrCat(repository, ": ", error.message()));
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string HypersolverFolder(const std::string& model_folder, const MethodChoice& method) {
  return absl::StrCat(model_folder, "/hypersolvers/", PrintMethod(method));
}

std::vector<MethodChoice> ListHypersolverMethods(const std::string& model_folder) {
  std::error_code error;
  std::vector<std::pair<std::string, MethodChoice>> found;
  for (fs::directory_iterator it(model_folder + "/hypersolvers", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto method = ParseMethod(name);
    std::error_code ignored;
    if (method.ok() && PrintMethod(*method) == name && it->is_directory(ignored)) {
      found.emplace_back(name, *method);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<MethodChoice> methods;
  for (const auto& [name, method] : found) methods.push_back(method);
  return methods;
}

std::vector<int64_t> ListGenerations(const std::string& hypersolver_folder) {
  return NumberedEntries(hypersolver_folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return fs::is_directory(entry.symlink_status(ignored));
  });
}

absl::StatusOr<GenerationFiles> ReadGeneration(const std::string& generation_folder) {
  std::error_code error;
  GenerationFiles files;
  for (fs::directory_iterator it(generation_folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code unreadable;
    if (!fs::is_regular_file(it->symlink_status(unreadable))) {
      return absl::FailedPreconditionError(
          absl::StrCat(it->path().string(), ": not a plain file (links are not followed)"));
    }
    const GenerationFileRule* rule = FindGenerationFileRule(name);
    if (rule == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(it->path().string(),
                       ": does not belong in a generation; known: ", GenerationFileNames()));
    }
    HS_ASSIGN_OR_RETURN(files[name], ReadFile(it->path().string(), rule->bytes_max));
  }
  if (error) return absl::NotFoundError(absl::StrCat(generation_folder, ": ", error.message()));
  if (!files.contains(kManifestName)) {
    return absl::FailedPreconditionError(
        absl::StrCat(generation_folder, ": ", kManifestName, " is missing"));
  }
  HS_RETURN_IF_ERROR(Annotate(CheckGenerationFiles(files), generation_folder));
  return files;
}

absl::StatusOr<int64_t> WriteGeneration(const std::string& hypersolver_folder,
                                        const GenerationFiles& files, int64_t taken,
                                        const std::function<absl::Status(int64_t)>& before) {
  HS_RETURN_IF_ERROR(CheckGenerationFiles(files));
  HS_RETURN_IF_ERROR(MakeFolders(hypersolver_folder));
  RemoveAbandoned(hypersolver_folder);
  const std::string temporary = absl::StrCat(hypersolver_folder, "/", kTemporaryPrefix, Uuid());
  if (mkdir(temporary.c_str(), 0755) != 0) return WriteFailure(errno, temporary, "make the folder");
  // Held until the folder has its number.
  const absl::StatusOr<FileLock> lock = FileLock::Take(temporary, std::chrono::milliseconds(0));
  absl::StatusOr<int64_t> number = 0;
  if (const absl::Status written = WriteFiles(temporary, files); written.ok()) {
    number = TakeNumber(hypersolver_folder, temporary, taken, before);
  } else {
    number = written;
  }
  if (!number.ok()) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  }
  return number;
}

absl::StatusOr<FileLock> LockHypersolverFolder(const std::string& hypersolver_folder) {
  absl::StatusOr<FileLock> lock = FileLock::Take(hypersolver_folder, kLockPatience);
  if (absl::IsUnimplemented(lock.status())) return FileLock::None();
  return lock;
}

void SkipFarAbove(int64_t highest, std::vector<int64_t>& ascending) {
  auto end = ascending.begin();
  while (end != ascending.end() && *end - highest <= kGenerationGapMax) {
    highest = std::max(highest, *end++);
  }
  ascending.erase(end, ascending.end());
}

void RemoveAbandoned(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const fs::file_status what = it->symlink_status(ignored);
    if (it->path().filename().string().find(kTemporaryPrefix) != std::string::npos &&
        (fs::is_directory(what) || fs::is_regular_file(what)) && IsAbandoned(it->path())) {
      abandoned.push_back(it->path());
    }
  }
  for (const fs::path& path : abandoned) fs::remove_all(path, error);
}

bool IsBeingWritten(const std::string& generation_folder) {
  bool recent = ChangedWithin(generation_folder, kSettled);
  std::error_code error;
  for (fs::directory_iterator it(generation_folder, error), end; !error && it != end;
       it.increment(error)) {
    recent = recent || ChangedWithin(it->path(), kSettled);
  }
  return recent && !ReadGeneration(generation_folder).ok();
}

absl::StatusOr<std::optional<int64_t>> ReadActive(const std::string& hypersolver_folder) {
  const std::string path = absl::StrCat(hypersolver_folder, "/", kActiveName);
  absl::StatusOr<std::string> text = ReadFile(path, kActiveBytesMax);
  if (absl::IsNotFound(text.status())) return std::optional<int64_t>();
  if (!text.ok()) return text.status();
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  const std::optional<int64_t> number = ParseGeneration(*text);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": '", absl::CHexEscape(*text), "' is not a generation (1 to ", kGenerationMax, ")"));
  }
  return number;
}

absl::Status WriteActive(const std::string& hypersolver_folder, int64_t generation) {
  return WriteFileAtomically(absl::StrCat(hypersolver_folder, "/", kActiveName),
                             absl::StrCat(generation, "\n"));
}

}  // namespace hyperserve
