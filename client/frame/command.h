// The frame of hyperserve-client: commands as a table, their options read and checked, failures
// told in words (frame/failure.h).
//
// Exit codes: 0 done; 1 failed, in words on stderr; 2 wrong usage; 3 done, but some rows (bench:
// some requests) failed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

using Arguments = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view arguments;  // as shown in the usage: "INPUT"
  std::string_view summary;
  std::string_view flags;  // separated by blanks; besides those that every command takes
  size_t arguments_min = 0;
  size_t arguments_max = 0;
  // The number of rows that failed. Errors made by UsageError end in exit code 2.
  absl::StatusOr<int64_t> (*run)(const Arguments& arguments) = nullptr;
};

// Sets the Abseil flags named in `words` (--name=value, --name value, --name, --noname; `--` ends
// them) and returns the other words. A usage error for options the command does not take, values
// that cannot be read or are out of bounds (CheckFlags), and a wrong number of arguments.
absl::StatusOr<Arguments> ParseArguments(const Command& command,
                                         std::span<const std::string> words);

// The help of all commands, and of one.
std::string Usage(std::span<const Command> commands);
std::string Usage(const Command& command);

// The whole program after main's arguments have become words. Output that could not be written is a
// failure (frame/output.h).
int RunProgram(std::span<const Command> commands, std::span<const std::string> words);

}  // namespace hyperserve
