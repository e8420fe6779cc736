// File descriptors of the process: a connection costs one, and a process without any cannot accept.
#pragma once

#include <cstdint>

namespace hyperserve {

// Raises the soft limit of descriptors to the hard one, and returns what holds then; at most
// kDescriptorsMost, since `ulimit -n unlimited` means no number of use. Call it at start. Never
// fails: what cannot be raised stays.
int64_t RaiseDescriptorLimit();
inline constexpr int64_t kDescriptorsMost = int64_t{1} << 20;

// Closes a descriptor when it goes out of scope. Moves, never copies.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  // The object that is moved from holds nothing.
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Close(); }

  // -1: none. Still closed by this object.
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release();  // the caller closes it from now on
  void Close();

 private:
  int fd_;
};

}  // namespace hyperserve
