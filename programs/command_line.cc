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

// Names of our own options, for messages.
std::string KnownOptions() {
  std::set<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "absl")) names.insert(absl::StrCat("--", name));
  }
  return absl::StrJoin(names, ", ");
}

// What is wrong with a value; empty: nothing. A value that fits is set.
std::string WrongValue(absl::CommandLineFlag& flag, absl::string_view value) {
  std::string abseil_words;
  if (absl::StrContains(flag.Filename(), "absl") || flag.ParseFrom(value, &abseil_words)) return "";
  const char* wanted = "a value of its kind";
  if (flag.IsOfType<bool>()) wanted = "true or false";
  if (flag.IsOfType<double>()) wanted = "a number";
  if (flag.IsOfType<int32_t>()) wanted = "a whole number below 2^31";
  if (flag.IsOfType<int64_t>()) wanted = "a whole number below 2^63";
  return absl::StrCat("--", flag.Name(), "=", value, " is not ", wanted);
}

// What is wrong with the first option of the line that names none of ours, or has a value that does
// not fit; empty: nothing.
std::string WrongOption(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') continue;
    absl::string_view name = word.substr(word[1] == '-' ? 2 : 1);
    const bool has_value = absl::StrContains(name, '=');
    absl::string_view value = has_value ? name.substr(name.find('=') + 1) : "";
    name = name.substr(0, name.find('='));
    if (std::ranges::count(kOfAbseil, name) > 0) continue;
    if (auto* const flag = absl::FindCommandLineFlag(name); flag != nullptr) {
      if (!has_value && flag->IsOfType<bool>()) continue;
      if (!has_value && ++i == argc) break;  // the next word is its value
      if (!has_value) value = argv[i];
      if (std::string wrong = WrongValue(*flag, value); !wrong.empty()) return wrong;
    } else if (!absl::ConsumePrefix(&name, "no") || absl::FindCommandLineFlag(name) == nullptr) {
      return absl::StrCat("no option ", word.substr(0, word.find('=')), "; there are ",
                          KnownOptions());
    }
  }
  return "";
}

}  // namespace

std::vector<char*> ParseFlags(const std::string& program, int argc, char** argv) {
  absl::FlagsUsageConfig config;
  config.version_string = [program] { return VersionText(program); };
  absl::SetFlagsUsageConfig(config);
  if (const std::string wrong = WrongOption(argc, argv); !wrong.empty()) {
    std::fprintf(stderr, "%s: %s\nsee `%s --help`\n", program.c_str(), wrong.c_str(),
                 program.c_str());
    std::exit(kUsageExitCode);  // NOLINT(concurrency-mt-unsafe): the only thread yet
  }
  on_exit(TurnIntoUsageExit, nullptr);
  parsing = true;
  std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return words;
}

}  // namespace hyperserve
