// The commands of hyperserve-client. The table in main.cc holds their arguments and options. Each
// reads its options from the flags, prints its results to stdout, and returns the number of failed
// rows (bench: of failed rows and requests). Main thread only.
#pragma once

#include "absl/status/statusor.h"
#include "client/frame/command.h"

namespace hyperserve {

absl::StatusOr<int64_t> RunClassify(const Arguments& arguments);
absl::StatusOr<int64_t> RunSample(const Arguments& arguments);
absl::StatusOr<int64_t> RunLogProb(const Arguments& arguments);
absl::StatusOr<int64_t> RunSolve(const Arguments& arguments);
absl::StatusOr<int64_t> RunCompare(const Arguments& arguments);
absl::StatusOr<int64_t> RunModels(const Arguments& arguments);
absl::StatusOr<int64_t> RunPublish(const Arguments& arguments);
absl::StatusOr<int64_t> RunRollback(const Arguments& arguments);
absl::StatusOr<int64_t> RunLoad(const Arguments& arguments);
absl::StatusOr<int64_t> RunUnload(const Arguments& arguments);
absl::StatusOr<int64_t> RunWatch(const Arguments& arguments);
absl::StatusOr<int64_t> RunHealth(const Arguments& arguments);
absl::StatusOr<int64_t> RunBench(const Arguments& arguments);

}  // namespace hyperserve
