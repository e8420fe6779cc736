#include "programs/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "programs/version.h"

namespace hyperserve {
namespace {

bool parsing = false;

// Abseil ends the process with 1 where a flag is wrong. We promise scripts the exit code 2 for
// wrong usage.
void TurnIntoUsageExit(int status, void*) {
  if (parsing && status != 0) _exit(kUsageExitCode);
}

// Options that Abseil knows by name only.
constexpr absl::string_view kOfAbseil[] = {"help",      "helpfull",    "helpshort", "helpon",
                                           "helpmatch", "helppackage", "version"};

// The first word of the line that looks like an option and names none; empty: there is none.
std::string UnknownOption(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') continue;
    absl::string_view name = word.substr(word[1] == '-' ? 2 : 1);
    const bool has_value = absl::StrContains(name, '=');
    name = name.substr(0, name.find('='));
    if (std::ranges::count(kOfAbseil, name) > 0) continue;
    if (const auto* flag = absl::FindCommandLineFlag(name); flag != nullptr) {
      if (!has_value && !flag->IsOfType<bool>()) ++i;  // the next word is its value
    } else if (!absl::ConsumePrefix(&name, "no") || absl::FindCommandLineFlag(name) == nullptr) {
      return std::string(word.substr(0, word.find('=')));
    }
  }
  return "";
}

// Names of our own options, for messages.
std::string KnownOptions() {
  std::set<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "absl")) names.insert(absl::StrCat("--", name));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::vector<char*> ParseFlags(const std::string& program, int argc, char** argv) {
  absl::FlagsUsageConfig config;
  config.version_string = [program] { return VersionText(program); };
  absl::SetFlagsUsageConfig(config);
  if (const std::string unknown = UnknownOption(argc, argv); !unknown.empty()) {
    std::fprintf(stderr, "%s: no option %s; there are %s\nsee `%s --help`\n", program.c_str(),
                 unknown.c_str(), KnownOptions().c_str(), program.c_str());
    std::exit(kUsageExitCode);  // NOLINT(concurrency-mt-unsafe): the only thread yet
  }
  on_exit(TurnIntoUsageExit, nullptr);
  parsing = true;
  std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return words;
}

}  // namespace hyperserve
