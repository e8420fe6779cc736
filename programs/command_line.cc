#include "programs/command_line.h"

#include <stdlib.h>
#include <unistd.h>

#include "absl/flags/parse.h"
#include "absl/flags/usage_config.h"
#include "programs/version.h"

namespace hyperserve {
namespace {

bool parsing = false;

// Abseil ends the process with 1 where a flag is wrong. We promise scripts the exit code 2 for
// wrong usage.
void TurnIntoUsageExit(int status, void*) {
  if (parsing && status != 0) _exit(kUsageExitCode);
}

}  // namespace

std::vector<char*> ParseFlags(const std::string& program, int argc, char** argv) {
  absl::FlagsUsageConfig config;
  config.version_string = [program] { return VersionText(program); };
  absl::SetFlagsUsageConfig(config);
  on_exit(TurnIntoUsageExit, nullptr);
  parsing = true;
  std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return words;
}

}  // namespace hyperserve
