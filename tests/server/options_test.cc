#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

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
  ExpectRefused({.batch_rows_max = 0}, "--batch_rows_max=0 is not within [1, 65536]");
  ExpectRefused({.drain_seconds = std::numeric_limits<double>::quiet_NaN()}, "--drain_seconds");
  ExpectRefused({.gate_margin = 1.0000001}, "--gate_margin=1.0000001 is not within [0, 1]");
  ExpectRefused({.queue_rows_max = 100}, "could never be queued");
  ExpectRefused({.device = "tpu"}, "--device=tpu");
  ExpectRefused({.device = "cuda:"}, "--device=cuda:");
  ExpectRefused({.device = "cuda:x"}, "--device=cuda:x");
  EXPECT_TRUE(ValidateOptions({.device = "cuda:1"}).ok());
  ExpectRefused({.log_level = "loud"}, "--log_level=loud");
  ExpectRefused({.http_address = "8502"}, "--http_address");
}

}  // namespace
}  // namespace hyperserve
