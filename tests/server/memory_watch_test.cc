#include "server/memory_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "server/metrics/process_figures.h"

namespace hyperserve {
namespace {

using std::chrono::seconds;

TEST(MemoryIsFull, BeginsAboveTheLimitAndEndsBelowALittleLess) {
  EXPECT_FALSE(MemoryIsFull(false, 100, 100));
  EXPECT_TRUE(MemoryIsFull(false, 101, 100));
  EXPECT_TRUE(MemoryIsFull(true, 96, 100));
  EXPECT_FALSE(MemoryIsFull(true, 95, 100));
}

bool Becomes(bool wanted, const std::atomic<bool>& full) {
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (full != wanted && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return full == wanted;
}

// A block in a hundred stays, so the allocator cannot shrink its heap.
TEST(MemoryWatch, WhatWasFreedBetweenWhatIsInUseIsGivenBack) {
  std::atomic<bool> full = false;
  const MemoryWatch watch(ReadProcessMemory().own_bytes + 100e6, &full);
  std::vector<std::unique_ptr<std::byte[]>> blocks;
  for (int i = 0; i < 200'000; ++i) blocks.push_back(std::make_unique<std::byte[]>(1000));
  EXPECT_TRUE(Becomes(true, full));
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 100 != 99) blocks[i].reset();
  }
  EXPECT_TRUE(Becomes(false, full));
}

}  // namespace
}  // namespace hyperserve
