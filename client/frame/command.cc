#include "client/frame/command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/output.h"
#include "core/base/status.h"
#include "programs/version.h"

namespace hyperserve {
namespace {

constexpr std::string_view kCommonFlags = "address timeout format";

// Names of all options that the command takes.
std::vector<std::string> FlagsOf(const Command& command) {
  return absl::StrSplit(absl::StrCat(Absl(command.flags), " ", Absl(kCommonFlags)), ' ',
                        absl::SkipEmpty());
}

bool Takes(const Command& command, std::string_view flag) {
  return std::ranges::count(FlagsOf(command), flag) > 0;
}

// The flag that `name` sets for this command; null: none. `negated`: `name` is "no" and a bool
// flag.
absl::CommandLineFlag* FindFlag(const Command& command, std::string_view name, bool& negated) {
  negated = false;
  if (Takes(command, name)) return absl::FindCommandLineFlag(Absl(name));
  if (name.starts_with("no") && Takes(command, name.substr(2))) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(Absl(name.substr(2)));
    if (flag != nullptr && flag->IsOfType<bool>()) {
      negated = true;
      return flag;
    }
  }
  return nullptr;
}

// The values that a flag takes, in words.
std::string_view KindOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<absl::Duration>()) return "a time with its unit, as in 500ms, 2s, 5m";
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<uint64_t>()) return "a whole number from 0 to 2^64 - 1";
  if (flag.IsOfType<int>()) return "a whole number below 2^31";
  return "a whole number below 2^63";
}

std::string FlagLine(std::string_view name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(Absl(name));
  if (flag == nullptr) return "";
  const std::string value = flag->DefaultValue();
  return absl::StrFormat("  --%-18s %s (default: %s)\n", Absl(name), flag->Help(),
                         value.empty() ? "none" : value);
}

int RunWords(std::span<const Command> commands, std::span<const std::string> words) {
  const auto asks_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (words.empty()) {
    std::fputs(Usage(commands).c_str(), stderr);
    return 2;
  }
  if (asks_help(words[0]) || words[0] == "help") {
    PrintOut(Usage(commands));
    return 0;
  }
  if (words[0] == "--version") {
    PrintOut(VersionText("hyperserve-client"));
    return 0;
  }
  const auto command = std::ranges::find(commands, std::string_view(words[0]), &Command::name);
  if (command == commands.end()) {
    std::fprintf(stderr, "no command '%s'\n\n%s", words[0].c_str(), Usage(commands).c_str());
    return 2;
  }
  if (std::ranges::any_of(words, asks_help)) {
    PrintOut(Usage(*command));
    return 0;
  }
  absl::StatusOr<int64_t> failed_rows = 0;
  if (const auto arguments = ParseArguments(*command, words.subspan(1)); arguments.ok()) {
    failed_rows = command->run(*arguments);
  } else {
    failed_rows = arguments.status();
  }
  if (failed_rows.ok()) return *failed_rows == 0 ? 0 : 3;
  if (IsUsageError(failed_rows.status())) {
    std::fprintf(stderr, "%s\nsee `hyperserve-client %s --help`\n",
                 std::string(failed_rows.status().message()).c_str(), words[0].c_str());
    return 2;
  }
  std::fputs(ExplainFailure(failed_rows.status()).c_str(), stderr);
  return 1;
}

}  // namespace

absl::StatusOr<Arguments> ParseArguments(const Command& command,
                                         std::span<const std::string> words) {
  Arguments arguments;
  bool flags_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (flags_ended || word.size() < 2 || word[0] != '-') {
      arguments.emplace_back(word);
      continue;
    }
    if (word[1] != '-') {
      return UsageError(absl::StrCat("'", Absl(word), "': options begin with two dashes, as in --",
                                     Absl(word.substr(1)), "; what follows a lone -- is none"));
    }
    if (word == "--") {
      flags_ended = true;
      continue;
    }
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(2, equals - 2);
    bool negated = false;
    absl::CommandLineFlag* flag = FindFlag(command, name, negated);
    if (flag == nullptr) {
      return UsageError(absl::StrCat("--", Absl(name), " is not an option of ", Absl(command.name),
                                     "; it takes --", absl::StrJoin(FlagsOf(command), ", --")));
    }
    std::string value = negated ? "false" : "true";
    if (equals < word.size()) {
      if (negated) return UsageError(absl::StrCat("--", Absl(name), " takes no value"));
      value = word.substr(equals + 1);
    } else if (!flag->IsOfType<bool>()) {
      if (i + 1 == words.size()) {
        return UsageError(absl::StrCat("--", Absl(name), " needs a value"));
      }
      value = words[++i];
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return UsageError(
          absl::StrCat("--", flag->Name(), "=", value, " is not ", Absl(KindOf(*flag))));
    }
  }
  if (arguments.size() < command.arguments_min || arguments.size() > command.arguments_max) {
    return UsageError(
        absl::StrCat(Absl(command.name), " takes ",
                     command.arguments.empty() ? "no arguments" : Absl(command.arguments), "; ",
                     arguments.size(), " given"));
  }
  HS_RETURN_IF_ERROR(CheckFlags());
  return arguments;
}

std::string Usage(std::span<const Command> commands) {
  std::string text =
      "hyperserve-client: calls a Hyperserve daemon.\n\n"
      "usage: hyperserve-client COMMAND [ARGUMENTS] [OPTIONS]\n\n";
  for (const Command& command : commands) {
    absl::StrAppendFormat(&text, "  %-9s %-15s %s\n", Absl(command.name), Absl(command.arguments),
                          Absl(command.summary));
  }
  absl::StrAppend(
      &text,
      "\n`hyperserve-client COMMAND --help` shows the options of one command, `--version` the "
      "version.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 some rows failed.\n");
  return text;
}

std::string Usage(const Command& command) {
  std::string text = absl::StrCat("usage: hyperserve-client ", Absl(command.name),
                                  command.arguments.empty() ? "" : " ", Absl(command.arguments),
                                  " [OPTIONS]\n\n", Absl(command.summary), "\n\n");
  for (const std::string& flag : FlagsOf(command)) absl::StrAppend(&text, FlagLine(flag));
  return text;
}

int RunProgram(std::span<const Command> commands, std::span<const std::string> words) {
  SetUpOutput();
  const int exit_code = RunWords(commands, words);
  const int error = OutputError();
  if (error == 0) return exit_code;
  if (error != EPIPE) {  // the reader has closed the pipe on purpose
    std::fprintf(stderr, "stdout could not be written: %s\n",
                 std::generic_category().message(error).c_str());
  }
  return 1;
}

}  // namespace hyperserve
