// What the operating system says of this process.
#pragma once

namespace hyperserve {

struct ProcessFigures {
  double cpu_seconds = 0;  // user and system
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double start_time_seconds = 0;  // Unix time
};

// From /proc/self; zeros where it cannot be read.
ProcessFigures ReadProcessFigures();

}  // namespace hyperserve
