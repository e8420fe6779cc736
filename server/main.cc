#include <cstdio>

#include "core/base/one_line.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "programs/standard_streams.h"
#include "server/daemon.h"
#include "server/flags.h"
#include "server/metrics/log.h"
#include "server/options.h"
#include "server/registry/check.h"
#include "server/signal_watch.h"

namespace hyperserve {
namespace {

int Check(const std::string& folder, const std::string& models) {
  const std::vector<std::string> problems = CheckModelFolder(folder, models);
  for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
  for (const std::string& code : ModelsWithCode(folder)) std::printf("%s\n", code.c_str());
  if (problems.empty()) {
    std::printf("%s: everything fits; the gate was not run\n", OneLine(folder).c_str());
  }
  return problems.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  const Options options = ParseCommandLine(argc, argv);
  if (!options.check.empty()) {
    LetSignalsEnd();
    return Check(options.check, options.models);
  }
  SetUpLog(options.log_level, options.log_format == "json" ? LogFormat::kJson : LogFormat::kLogfmt);
  StartSignalWatch();
  auto daemon = Daemon::Start(options, SignalCame, AskToEnd);
  if (!daemon.ok() && !SignalCame()) {
    Log(LogLevel::kError,
        NewLogLine().Add("event", "failed").Add("message", std::string(daemon.status().message())));
    return 1;
  }
  const int signal = WaitForSignal();
  Log(LogLevel::kInfo, NewLogLine().Add("event", "signal").Add("number", signal));
  if (daemon.ok()) (*daemon)->Shutdown();
  Log(LogLevel::kInfo, NewLogLine().Add("event", "end"));
  return signal == kOwnFault ? 1 : 0;
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::HoldStandardStreams();
  hyperserve::SetUpNumerics();
  return hyperserve::Main(argc, argv);
}
