#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "server/batching/batcher_options.h"
#include "server/calls/limits.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

void ExpectRefused(const Options& options, const std::string& words) {
  const absl::Status status = ValidateOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(Options, DefaultsAreValid) { EXPECT_TRUE(ValidateOptions({}).ok()); }

TEST(Options, EveryLineHasUnitAndReason) {
  std::set<std::string> names;
  for (const OptionLine& line : OptionLines({})) {
    SCOPED_TRACE(line.name);
    EXPECT_TRUE(names.insert(line.name).second);
    EXPECT_FALSE(line.unit.empty());
    EXPECT_FALSE(line.reason.empty());
  }
  EXPECT_GT(names.size(), 20u);
}

TEST(Options, LinesShowTheValuesInForce) {
  Options options;
  options.batch_rows_max = 77;
  options.gate_margin = 0.125;
  options.read_only = true;
  std::map<std::string, std::string> values;
  for (const OptionLine& line : OptionLines(options)) values[line.name] = line.value;
  EXPECT_EQ(values["batch_rows_max"], "77");
  EXPECT_EQ(values["gate_margin"], "0.125");
  EXPECT_EQ(values["read_only"], "true");
  EXPECT_EQ(values["reply_bytes_default"], std::to_string((4 << 20) - (64 << 10)));
}

TEST(Options, Bounds) {
  ExpectRefused({.batch_rows_max = -1}, "--batch_rows_max=-1 is not within [0, 65536]");
  ExpectRefused({.drain_seconds = std::numeric_limits<double>::quiet_NaN()}, "--drain_seconds");
  ExpectRefused({.gate_margin = 1.0000001}, "--gate_margin=1.0000001 is not within [0, 1]");
  ExpectRefused({.queue_rows_max = 100, .request_rows_max = 101}, "could never be queued");
  ExpectRefused({.models = ""}, "--models= names no folder");
  ExpectRefused({.device = "tpu"}, "--device=tpu");
  ExpectRefused({.device = "cuda:"}, "--device=cuda:");
  ExpectRefused({.device = "cuda:x"}, "--device=cuda:x");
  EXPECT_TRUE(ValidateOptions({.device = "cuda:1"}).ok());
  ExpectRefused({.log_level = "loud"}, "--log_level=loud");
  ExpectRefused({.http_address = "8502"}, "--http_address");
}

TEST(InForce, TheMachineDecidesWhatThePageLeavesOpen) {
  const Options cpu = InForce({}, {.cores = 3});
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(cpu.solvers, 3);
  EXPECT_EQ(cpu.pending_macs_max, 9e12);
  EXPECT_EQ(cpu.batch_macs_max, 5e7);
  EXPECT_EQ(cpu.evaluation_macs_fixed, 5e5);
  EXPECT_EQ(cpu.live_runs_max, 24);
  const Options gpu = InForce({}, {.cores = 3, .gpus = {"cuda:0", "cuda:1"}});
  EXPECT_EQ(gpu.device, "cuda");
  EXPECT_EQ(DevicesOf(gpu, {.gpus = {"cuda:0", "cuda:1"}}),
            (std::vector<std::string>{"cuda:0", "cuda:1"}));
  EXPECT_EQ(DevicesOf({.device = "cuda:1"}, {.gpus = {"cuda:0", "cuda:1"}}),
            std::vector<std::string>{"cuda:1"});
  EXPECT_EQ(gpu.solvers, 2);
  EXPECT_EQ(gpu.pending_macs_max, 1e15);
  EXPECT_EQ(gpu.batch_macs_max, 1e11);
  EXPECT_EQ(gpu.evaluation_macs_fixed, 5e8);
  EXPECT_EQ(InForce({}, {.gpus = {"cuda:0"}, .gpu_memory_bytes = 100}).device_memory_max, 90);
  const Options asked = InForce({.device = "cpu", .solvers = 1, .batch_macs_max = 7},
                                {.cores = 3, .gpus = {"cuda:0", "cuda:1"}});
  EXPECT_EQ(asked.device, "cpu");
  EXPECT_EQ(asked.solvers, 1);
  EXPECT_EQ(asked.batch_macs_max, 7);
}

TEST(InForce, DefaultsKeepToTheirMaxima) {
  const Options options =
      InForce({.request_rows_max = 100, .reply_bytes_max = 2048, .deadline_max_seconds = 5}, {});
  EXPECT_EQ(options.chunk_rows_default, 100);
  EXPECT_EQ(options.reply_bytes_default, 2048);
  EXPECT_EQ(options.deadline_default_seconds, 5);
}

TEST(InForce, RowsFollowTheDeviceAndEachOther) {
  const Options cpu = InForce({}, {});
  EXPECT_EQ(cpu.batch_rows_max, 256);
  EXPECT_EQ(cpu.request_rows_max, 16384);
  EXPECT_EQ(cpu.chunk_rows_default, 4096);
  const Options gpu = InForce({}, {.gpus = {"cuda:0"}});
  EXPECT_EQ(gpu.batch_rows_max, 65536);
  EXPECT_EQ(gpu.request_rows_max, 1 << 20);
  EXPECT_EQ(gpu.queue_rows_max, 1 << 22);
  EXPECT_EQ(InForce({.queue_rows_max = 100}, {}).request_rows_max, 100);
  EXPECT_EQ(InForce({.request_rows_max = 1 << 15}, {}).queue_rows_max, 1 << 15);
}

TEST(InForce, ASolverLooksOutForWorkWhereThereAreCoresToSpare) {
  EXPECT_EQ(InForce({}, {.cores = 16}).watch_max_us, 1000);
  EXPECT_EQ(InForce({}, {.cores = 2}).watch_max_us, 0);
  EXPECT_EQ(InForce({.watch_max_us = 1}, {.cores = 16}).watch_max_us, 1);
}

TEST(BatcherOptionsOf, AreThoseOfThePage) {
  const BatcherOptions batcher = BatcherOptionsOf({.solvers = 1,
                                                   .batch_rows_max = 2,
                                                   .queue_delay_max_us = 3,
                                                   .queue_rows_max = 4,
                                                   .queue_bytes_max = 5,
                                                   .pending_macs_max = 6,
                                                   .evaluation_macs_fixed = 7,
                                                   .live_queues_max = 8,
                                                   .live_runs_max = 9,
                                                   .turn_max_us = 10,
                                                   .watch_max_us = 11});
  EXPECT_EQ(batcher.solvers, 1);
  EXPECT_EQ(batcher.batch_rows_max, 2);
  EXPECT_EQ(batcher.queue_delay_max.count(), 3);
  EXPECT_EQ(batcher.queue_rows_max, 4);
  EXPECT_EQ(batcher.queue_bytes_max, 5);
  EXPECT_EQ(batcher.pending_macs_max, 6);
  EXPECT_EQ(batcher.evaluation_macs_fixed, 7);
  EXPECT_EQ(batcher.live_queues_max, 8);
  EXPECT_EQ(batcher.live_runs_max, 9);
  EXPECT_EQ(batcher.turn_max.count(), 10);
  EXPECT_EQ(batcher.watch_max.count(), 11);
}

TEST(LimitsOf, AreThoseOfThePage) {
  const CallLimits limits = LimitsOf({.queue_bytes_max = 1,
                                      .pending_macs_max = 2,
                                      .batch_macs_max = 3,
                                      .live_runs_max = 17,
                                      .request_rows_max = 4,
                                      .steps_max = 5,
                                      .save_at_max = 6,
                                      .reply_bytes_default = 7,
                                      .reply_bytes_max = 8,
                                      .stream_rows_max = 9,
                                      .chunk_rows_default = 10,
                                      .deadline_default_seconds = 0.011,
                                      .deadline_max_seconds = 0.012,
                                      .retry_pushback_ms = 13});
  EXPECT_EQ(limits.request_bytes_max, 1);
  EXPECT_EQ(limits.request_macs_max, 2);
  EXPECT_EQ(limits.batch_macs_max, 3);
  EXPECT_EQ(limits.live_runs_max, 17);
  EXPECT_EQ(limits.request_rows_max, 4);
  EXPECT_EQ(limits.steps_max, 5);
  EXPECT_EQ(limits.save_at_max, 6);
  EXPECT_EQ(limits.reply_bytes_default, 7);
  EXPECT_EQ(limits.reply_bytes_max, 8);
  EXPECT_EQ(limits.stream_rows_max, 9);
  EXPECT_EQ(limits.chunk_rows_default, 10);
  EXPECT_EQ(limits.deadline_default.count(), 11);
  EXPECT_EQ(limits.deadline_max.count(), 12);
  EXPECT_EQ(limits.retry_pushback.count(), 13);
}

}  // namespace
}  // namespace hyperserve
