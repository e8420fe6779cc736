#include "server/metrics/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace hyperserve {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Field 22 of /proc/self/stat (starttime, in ticks since boot) plus the boot time of /proc/stat.
double StartTimeSeconds() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  // The second field, a name in parentheses, may hold spaces, so count from behind it.
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  const double ticks = std::strtod(field.c_str(), nullptr);

  std::ifstream boot("/proc/stat");
  while (std::getline(boot, line)) {
    if (line.starts_with("btime ")) {
      return std::strtod(line.c_str() + 6, nullptr) + ticks / sysconf(_SC_CLK_TCK);
    }
  }
  return 0;
}

}  // namespace

ProcessMemory ReadProcessMemory() {
  std::ifstream statm("/proc/self/statm");
  double virtual_pages = 0, resident_pages = 0, shared_pages = 0;
  if (!(statm >> virtual_pages >> resident_pages >> shared_pages)) return {};
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return {.virtual_bytes = virtual_pages * page,
          .resident_bytes = resident_pages * page,
          .own_bytes = (resident_pages - shared_pages) * page};
}

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    figures.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  const ProcessMemory memory = ReadProcessMemory();
  figures.virtual_bytes = memory.virtual_bytes;
  figures.resident_bytes = memory.resident_bytes;
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  if (!error) figures.open_fds = static_cast<double>(std::distance(begin(fds), end(fds)));
  static const double start_time = StartTimeSeconds();
  figures.start_time_seconds = start_time;
  return figures;
}

}  // namespace hyperserve
