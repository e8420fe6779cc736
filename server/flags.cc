#include "server/flags.h"

#include <cstdio>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "programs/command_line.h"

namespace hyperserve {
namespace {

[[noreturn]] void EndWithWords(const std::string& words) {
  std::fprintf(stderr, "hyperserve: %s\n", words.c_str());
  std::exit(kUsageExitCode);  // NOLINT(concurrency-mt-unsafe): the only thread yet
}

// An empty --check is the flag's default. A script whose variable is not set must not start a
// daemon.
bool ChecksNothing(std::string_view argument, std::string_view next) {
  return argument == "--check=" || argument == "-check=" ||
         ((argument == "--check" || argument == "-check") && next.empty());
}

}  // namespace
}  // namespace hyperserve

#define HYPERSERVE_FLAG(name, value, unit, reason) \
  ABSL_FLAG(std::string, name, value, reason " (" unit ")");
HYPERSERVE_TEXT_OPTIONS(HYPERSERVE_FLAG)
#undef HYPERSERVE_FLAG
#define HYPERSERVE_FLAG(type, name, value, least, most, unit, reason) \
  ABSL_FLAG(type, name, value, reason " (" unit ")");
HYPERSERVE_NUMBER_OPTIONS(HYPERSERVE_FLAG)
#undef HYPERSERVE_FLAG

namespace hyperserve {

Options ParseCommandLine(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      std::fputs(OptionsHelp().c_str(), stdout);
      std::exit(0);  // NOLINT(concurrency-mt-unsafe): the only thread yet
    }
    if (ChecksNothing(argument, i + 1 < argc ? argv[i + 1] : "")) {
      EndWithWords(
          "--check= names no folder; write --check=FOLDER, a model, a repository or a candidate");
    }
  }
  const std::vector<char*> rest = ParseFlags("hyperserve", argc, argv);
  if (rest.size() > 1) {
    EndWithWords("'" + std::string(rest[1]) + "' is no flag; see hyperserve --help");
  }
  Options options;
#define HYPERSERVE_READ(name, ...) options.name = absl::GetFlag(FLAGS_##name);
  HYPERSERVE_TEXT_OPTIONS(HYPERSERVE_READ)
#undef HYPERSERVE_READ
#define HYPERSERVE_READ(type, name, ...) options.name = absl::GetFlag(FLAGS_##name);
  HYPERSERVE_NUMBER_OPTIONS(HYPERSERVE_READ)
#undef HYPERSERVE_READ
  const absl::Status status = ValidateOptions(options);
  if (!status.ok()) EndWithWords(std::string(status.message()));
  return options;
}

}  // namespace hyperserve
