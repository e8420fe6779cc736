// A GPU whose memory is full or bounded, and one that a kernel has lost. The last ends what this
// process can do with it, so all are one test. Skipped where there is no CUDA device.
#include "tests/core/engine/bad_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/device_memory.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

TEST(BadDeviceTest, FullThenLost) {
  if (ListDevices().size() < 2) GTEST_SKIP() << "no CUDA device";
  const auto runtime = MakeDeviceRuntime("cuda");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const fixture::LinearModel files = fixture::TinyFlow();
  const auto model = Model::FromBytes(files.model_json, files.weights);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto solve = [&](int64_t rows) {
    return SolveAlone(
               **runtime,
               {.model = *model, .entry = Entry::kNoise, .direction = Direction::kNoiseToData},
               *ParsePlan("rk4:2")->fixed(), {.rows = rows})
        .status();
  };
  ASSERT_TRUE(solve(16).ok());

  void* const taken = fixture::TakeDeviceMemory(64 << 20);
  ASSERT_NE(taken, nullptr);
  const absl::Status full = solve(1 << 24);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_TRUE(solve(16).ok()) << "fewer rows fit";
  fixture::GiveDeviceMemory(taken);
  EXPECT_TRUE(solve(1 << 24).ok());

  BoundMemory("cuda:0", 64 << 20);
  const absl::Status bounded = solve(1 << 24);
  EXPECT_EQ(bounded.code(), absl::StatusCode::kResourceExhausted) << bounded;
  EXPECT_TRUE(solve(16).ok()) << "fewer rows fit";
  BoundMemory("cuda:0", 1e15);
  EXPECT_TRUE(solve(1 << 24).ok());

  const int64_t held = MemoryInUse("cuda:0");
  GiveBackMemory("cuda:0");
  EXPECT_LT(MemoryInUse("cuda:0"), held - (128 << 20)) << "the state of these rows alone has that";

  fixture::TrapDevice();
  const absl::Status lost = solve(16);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("the device is lost"));
}

}  // namespace
}  // namespace hyperserve
