#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "core/base/one_line.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "programs/standard_streams.h"
#include "server/daemon.h"
#include "server/flags.h"
#include "server/options.h"
#include "server/registry/check.h"
#include "server/signal_watch.h"

namespace hyperserve {
namespace {

int Check(const std::string& folder) {
  const std::vector<std::string> problems = CheckModelFolder(folder);
  for (const std::string& problem : problems) std::printf("%s\n", problem.c_str());
  if (problems.empty()) {
    std::printf("%s: everything fits; the gate was not run\n", OneLine(folder).c_str());
  }
  return problems.empty() ? 0 : 1;
}

void SetUpLog(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("hyperserve"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

int Main(int argc, char** argv) {
  const Options options = ParseCommandLine(argc, argv);
  if (!options.check.empty()) return Check(options.check);
  SetUpLog(options.log_level);
  StartSignalWatch();
  auto daemon = Daemon::Start(options, SignalCame, AskToEnd);
  if (!daemon.ok() && !SignalCame()) {
    spdlog::error("event=failed {}", OneLine(std::string(daemon.status().message())));
    return 1;
  }
  const int signal = WaitForSignal();
  spdlog::info("event=signal number={}", signal);
  if (daemon.ok()) (*daemon)->Shutdown();
  spdlog::info("event=end");
  return signal == kOwnFault ? 1 : 0;
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::HoldStandardStreams();
  hyperserve::SetUpNumerics();
  return hyperserve::Main(argc, argv);
}
