#include "server/net/descriptors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hyperserve {

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;  // what Linux gives by default
  const rlim_t soft = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kDescriptorsMost);
  if (limit.rlim_cur < soft || setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = soft;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kDescriptorsMost));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.Release();
  }
  return *this;
}

int Descriptor::Release() { return std::exchange(fd_, -1); }

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace hyperserve
