// The three streams that every program has, or believes to have.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace hyperserve {

// To be called before anything is opened. A standard stream that is closed stays so: its number
// would be that of the next file or socket, and what is printed would go into it.
inline void HoldStandardStreams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDONLY);  // the lowest number that is free; writing to it fails
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace hyperserve
