// The three standard streams of a process, one of which its parent may have closed.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace hyperserve {

// Occupies the file descriptors of closed standard streams with /dev/null. Otherwise the next file
// or socket would get such a descriptor, and printed text would go into it. Called by main before
// anything is opened. Never fails.
inline void HoldStandardStreams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDONLY);  // takes the lowest free descriptor; writing to it fails
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace hyperserve
