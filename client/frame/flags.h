// Every option of hyperserve-client; flags.cc defines them with their defaults and help. The table
// of commands (command/main.cc) says which command takes which. ParseArguments sets them, before
// the process has threads.
#pragma once

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

ABSL_DECLARE_FLAG(std::string, address);
ABSL_DECLARE_FLAG(std::string, admin_address);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
ABSL_DECLARE_FLAG(std::string, format);
ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(std::string, method);
ABSL_DECLARE_FLAG(std::string, plan);
ABSL_DECLARE_FLAG(std::string, plans);
ABSL_DECLARE_FLAG(std::string, reference);
ABSL_DECLARE_FLAG(int64_t, generation);
ABSL_DECLARE_FLAG(int64_t, parent_generation);
ABSL_DECLARE_FLAG(bool, allow_narrower);
ABSL_DECLARE_FLAG(int64_t, max_steps);
ABSL_DECLARE_FLAG(std::string, request_id);
ABSL_DECLARE_FLAG(std::string, reply_dtype);
ABSL_DECLARE_FLAG(std::string, tensor);
ABSL_DECLARE_FLAG(std::string, condition);
ABSL_DECLARE_FLAG(std::string, guidance);
ABSL_DECLARE_FLAG(int64_t, limit);
ABSL_DECLARE_FLAG(int64_t, batch);
ABSL_DECLARE_FLAG(int, concurrency);
ABSL_DECLARE_FLAG(std::string, labels);
ABSL_DECLARE_FLAG(int, top_k);
ABSL_DECLARE_FLAG(bool, probabilities);
ABSL_DECLARE_FLAG(bool, logits);
ABSL_DECLARE_FLAG(int64_t, rows);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(uint64_t, first_row);
ABSL_DECLARE_FLAG(bool, log_density);
ABSL_DECLARE_FLAG(bool, error_bound);
ABSL_DECLARE_FLAG(int32_t, probes);
ABSL_DECLARE_FLAG(uint64_t, probe_seed);
ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(bool, state);
ABSL_DECLARE_FLAG(std::string, span);
ABSL_DECLARE_FLAG(std::string, save_at);
ABSL_DECLARE_FLAG(bool, partial_states);
ABSL_DECLARE_FLAG(std::string, direction);
ABSL_DECLARE_FLAG(bool, watch);
ABSL_DECLARE_FLAG(absl::Duration, duration);
ABSL_DECLARE_FLAG(int64_t, count);
ABSL_DECLARE_FLAG(std::string, json_lines);

namespace hyperserve {

// A usage error names the first option that breaks its limits, its value and the limits.
absl::Status CheckFlags();

}  // namespace hyperserve
