// What the operating system says about this process: CPU time, memory, files, start.
#pragma once

namespace hyperserve {

// In the base units of Prometheus; doubles, as its gauges are.
struct ProcessFigures {
  double cpu_seconds = 0;  // user and system
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double start_time_seconds = 0;  // Unix time
};

// Reads /proc/self and getrusage. A figure that cannot be read is 0. Thread-safe.
ProcessFigures ReadProcessFigures();

// Memory alone: cheap enough to be read ten times a second. Zeros: it cannot be read.
struct ProcessMemory {
  double virtual_bytes = 0;
  double resident_bytes = 0;
  double own_bytes = 0;  // resident, not shared with a file
};
// Thread-safe.
ProcessMemory ReadProcessMemory();

}  // namespace hyperserve
