// What is said where the memory of a GPU is full.
#include "training/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

TEST(MemoryAdviceTest, AFullDeviceSaysWhatWouldHelp) {
  const absl::Status full =
      absl::ResourceExhaustedError("training: the memory of the device is full");
  EXPECT_EQ(WithMemoryAdvice(full, 2e9).message(),
            "training: the memory of the device is full; allow more than --device_memory_max=2e+09 "
            "bytes, or give the recipe smaller batches (optimiser.batch) or fewer rows");
  EXPECT_THAT(std::string(WithMemoryAdvice(full, 0).message()),
              HasSubstr("full; free what other processes hold of it, or give the recipe"));
  EXPECT_TRUE(absl::IsResourceExhausted(WithMemoryAdvice(full, 0)));
  EXPECT_EQ(WithMemoryAdvice(absl::InternalError("else"), 2e9), absl::InternalError("else"));
  EXPECT_TRUE(WithMemoryAdvice(absl::OkStatus(), 2e9).ok());
}

}  // namespace
}  // namespace hyperserve
