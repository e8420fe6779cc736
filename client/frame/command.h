// The frame of hyperserve-client: a table of commands, parsing and checking of their options, and
// messages for failures (frame/failure.h). Main thread only.
//
// Exit codes: 0 done; 1 failed, with a message on stderr; 2 wrong usage; 3 done, but some rows
// (bench: rows or requests) failed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

using Arguments = std::vector<std::string>;

// One line of the table of commands; texts of static storage.
struct Command {
  std::string_view name;
  std::string_view arguments;  // as the usage shows them: "INPUT"
  std::string_view summary;
  std::string_view flags;  // separated by blanks; without those that every command takes
  size_t arguments_min = 0;
  size_t arguments_max = 0;
  // Returns the number of failed rows. An error made by UsageError ends in exit code 2.
  absl::StatusOr<int64_t> (*run)(const Arguments& arguments) = nullptr;
};

// Sets the Abseil flags in `words` (--name=value, --name value, --name, --noname; `--` ends them)
// and returns the other words. A usage error names an option that the command does not take, a
// value that cannot be read or breaks its limits (CheckFlags), or a wrong number of arguments.
absl::StatusOr<Arguments> ParseArguments(const Command& command,
                                         std::span<const std::string> words);

// The help text of all commands, and of one.
std::string Usage(std::span<const Command> commands);
// Pure but for the flags' help, which it reads.
std::string Usage(const Command& command);

// The whole program; returns its exit code. `words` are the arguments of main without the program's
// name. Output that cannot be written is a failure (frame/output.h).
int RunProgram(std::span<const Command> commands, std::span<const std::string> words);

}  // namespace hyperserve
