#include "client/frame/flags.h"

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "client/frame/failure.h"
#include "core/base/host_port.h"
#include "core/base/status.h"

ABSL_FLAG(std::string, address, "127.0.0.1:8500", "where the daemon answers calls");
ABSL_FLAG(std::string, admin_address, "127.0.0.1:8501", "where the daemon takes Admin calls");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(60),
          "longest time of one call, retries included: 500ms, 2s, 5m");
ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(
    std::string, model, "",
    "name of the model; publish and rollback need it, the others only where several are served");
ABSL_FLAG(std::string, method, "",
          "method of the correction: euler, alpha(0.75); publish reads it from hypersolver.json");
ABSL_FLAG(std::string, plan, "default",
          "how to solve: euler:4, learned:4, dopri5:1e-5/double, auto:1e-2, auto:1e-2,per_row");
ABSL_FLAG(
    std::string, plans, "",
    "plans to compare, separated by blanks (or by ';'); empty: the calibrated ones of tier exact");
ABSL_FLAG(std::string, reference, "dopri5:1e-6", "the plan that the others are measured against");
ABSL_FLAG(int64_t, generation, 0,
          "pin this generation of the correction (rollback: go back to it); 0: the active one "
          "(rollback: the previous one)");
ABSL_FLAG(
    int64_t, parent_generation, -1,
    "refuse to publish unless this generation is active; 0: unless none is; -1: no condition");
ABSL_FLAG(bool, allow_narrower, false,
          "publish also what serves fewer steps or a narrower range of eps than the active one");
ABSL_FLAG(int64_t, max_steps, 0, "step limit of an adaptive row; 0: the server's");
ABSL_FLAG(bool, error_bound, false,
          "ask for a bound of each row's error, which 95 % of rows like the calibrated ones keep");
ABSL_FLAG(int32_t, probes, 0,
          "by how many a log-density in more than 64 dimensions is estimated, 2 to 64; 0: 8");
ABSL_FLAG(uint64_t, probe_seed, 0, "seed of these probes");
ABSL_FLAG(std::string, request_id, "", "name of the request in the daemon's log; empty: made here");
ABSL_FLAG(std::string, reply_dtype, "",
          "of states, samples, logits and probabilities in the reply: F16, F32, or F64 in tier "
          "double; empty: that of the tier");
ABSL_FLAG(std::string, tensor, "",
          "which tensor of a safetensors file; empty: x, or the only one there is");
ABSL_FLAG(std::string, condition, "",
          "of a conditional model: one for all rows, as in 0.5,1, or a file with one for each row");
ABSL_FLAG(
    std::string, guidance, "",
    "weight of the condition: a number for all rows, one for each step as in 1,2,4, or a file "
    "with one for each row");
ABSL_FLAG(int64_t, limit, 0, "use only the first rows of the input; 0: all");
ABSL_FLAG(int64_t, batch, 64, "rows of one request; longer inputs are sent as several");
ABSL_FLAG(int, concurrency, 2, "requests under way at a time");
ABSL_FLAG(std::string, labels, "", "file of the true labels (as INPUT), to print the accuracy");
ABSL_FLAG(int, top_k, 0, "ask for the k most probable classes");
ABSL_FLAG(bool, probabilities, false, "ask for the probabilities of all classes");
ABSL_FLAG(bool, logits, false, "ask for the logits");
ABSL_FLAG(int64_t, rows, 1, "samples to draw (bench: rows of one request)");
ABSL_FLAG(uint64_t, seed, 0, "seed of the noise");
ABSL_FLAG(uint64_t, first_row, 0, "number of the first sample, to go on where another call ended");
ABSL_FLAG(bool, log_density, false, "ask for the log-density of each sample");
ABSL_FLAG(std::string, out, "",
          "file to write: sample .csv, .safetensors or .png; solve .csv or .safetensors");
ABSL_FLAG(bool, state, false, "the input is z(s0) itself, not the model's input");
ABSL_FLAG(std::string, span, "", "own span 'begin,end'; empty: the model's");
ABSL_FLAG(std::string, save_at, "", "depths 's,s,...' whose states are wanted as well");
ABSL_FLAG(bool, partial_states, false, "rows that failed hold how far they came, instead of NaN");
ABSL_FLAG(std::string, direction, "",
          "of a flow: noise_to_data or data_to_noise; empty: that of its field");
ABSL_FLAG(bool, watch, false, "print each change until --timeout");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "how long to send requests");
ABSL_FLAG(int64_t, count, 0, "end after this many requests; 0: only --duration ends");
ABSL_FLAG(std::string, json_lines, "",
          "file that gets one JSON line a request: start, seconds, code, generation, rows");

namespace hyperserve {
namespace {

// No call and no measurement takes longer than kTimeMax, and a clock that counts nanoseconds does
// not overflow.
constexpr absl::Duration kTimeMin = absl::Milliseconds(1);
constexpr absl::Duration kTimeMax = absl::Hours(24);

constexpr int kConcurrencyMax = 4096;

template <class T>
absl::Status CheckLeast(const absl::Flag<T>& flag, T least) {
  if (absl::GetFlag(flag) >= least) return absl::OkStatus();
  const absl::CommandLineFlag& self = absl::GetFlagReflectionHandle(flag);
  return UsageError(absl::StrCat("--", self.Name(), "=", self.CurrentValue(), " is below ", least,
                                 ", the least: ", self.Help()));
}

absl::Status CheckTime(const absl::Flag<absl::Duration>& flag) {
  const absl::Duration time = absl::GetFlag(flag);
  if (time >= kTimeMin && time <= kTimeMax) return absl::OkStatus();
  const absl::CommandLineFlag& self = absl::GetFlagReflectionHandle(flag);
  return UsageError(absl::StrCat("--", self.Name(), "=", self.CurrentValue(), " is not within [",
                                 absl::FormatDuration(kTimeMin), ", ",
                                 absl::FormatDuration(kTimeMax), "]: ", self.Help()));
}

absl::Status CheckReplyDtype() {
  const std::string name = absl::GetFlag(FLAGS_reply_dtype);
  if (name.empty() || name == "F16" || name == "F32" || name == "F64") return absl::OkStatus();
  return UsageError(absl::StrCat("--reply_dtype=", name, ": there are F16, F32 and F64"));
}

absl::Status CheckHostPort(const absl::Flag<std::string>& flag) {
  const absl::Status status = ParseHostPort(absl::GetFlag(flag), /*port_min=*/1).status();
  if (status.ok()) return status;
  const absl::CommandLineFlag& self = absl::GetFlagReflectionHandle(flag);
  return UsageError(
      absl::StrCat("--", self.Name(), "=", self.CurrentValue(), ": ", status.message()));
}

}  // namespace

absl::Status CheckFlags() {
  HS_RETURN_IF_ERROR(CheckHostPort(FLAGS_address));
  HS_RETURN_IF_ERROR(CheckHostPort(FLAGS_admin_address));
  HS_RETURN_IF_ERROR(CheckReplyDtype());
  HS_RETURN_IF_ERROR(CheckTime(FLAGS_timeout));
  HS_RETURN_IF_ERROR(CheckTime(FLAGS_duration));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_generation, 0));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_parent_generation, -1));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_max_steps, 0));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_limit, 0));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_batch, 1));
  HS_RETURN_IF_ERROR(CheckLeast(FLAGS_concurrency, 1));
  if (absl::GetFlag(FLAGS_concurrency) > kConcurrencyMax) {
    return UsageError(absl::StrCat("--concurrency=", absl::GetFlag(FLAGS_concurrency), " is above ",
                                   kConcurrencyMax, ": each takes a thread"));
  }
  HS_RETURN_IF_ERROR(CheckLeast(FLAGS_top_k, 0));
  HS_RETURN_IF_ERROR(CheckLeast<int64_t>(FLAGS_rows, 1));
  return CheckLeast<int64_t>(FLAGS_count, 0);
}

}  // namespace hyperserve
