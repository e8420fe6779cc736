// Watches the memory of the process, so that work is refused before the kernel ends the process.
#pragma once

#include <atomic>
#include <thread>

#include "server/net/listening_socket.h"

namespace hyperserve {

// Is the process full, given that it was or was not, and its bytes? Full begins above the limit and
// ends below 95 % of it, so that calls are not let in and refused in turns. Pure.
bool MemoryIsFull(bool was_full, double bytes, double bytes_max);

// Sets `full` ten times a second on a thread of its own, from the memory that the process does not
// share with files: mapped weights do not count, since the kernel can drop them. Memory that
// cannot be read counts as none. While it is full, the allocator gives back what it keeps.
class MemoryWatch {
 public:
  // `full` must outlive the watch.
  MemoryWatch(double bytes_max, std::atomic<bool>* full);
  ~MemoryWatch();  // ends the thread; `full` keeps its last value

 private:
  void Run();

  const double bytes_max_;
  std::atomic<bool>* const full_;
  const Wake wake_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace hyperserve
