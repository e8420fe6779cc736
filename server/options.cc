#include "server/options.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/host_port.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "server/net/connection_ledger.h"

namespace hyperserve {
namespace {

// Pending: a few minutes of work. Batch: a few milliseconds for one evaluation (0.03 s on a GPU). A
// core does about 2e10 MACs a second; an H100 about 3e12 with the readable engine.
constexpr double kPendingMacsOfCore = 3e12, kPendingMacsOfGpu = 1e15;
constexpr double kBatchMacsOfCore = 5e7, kBatchMacsOfGpu = 1e11;
// About 25 us of calls on a CPU, about 150 us of launches on a GPU.
// A row of a flow costs a GPU next to nothing, a batch some tens of microseconds.
constexpr int64_t kBatchRowsOfCpu = 256, kBatchRowsOfGpu = 65536;
constexpr int64_t kQueueRowsOfCpu = 16384, kQueueRowsOfGpu = 1 << 22;
constexpr int64_t kRequestRowsOfCpu = 16384, kRequestRowsOfGpu = 1 << 20;
constexpr int64_t kChunkRowsOfCpu = 4096, kChunkRowsOfGpu = 65536;
constexpr double kFixedMacsOfCore = 5e5, kFixedMacsOfGpu = 5e8;
// The shipped corrections take up to 1e12.
constexpr double kExaminationMacsOfCpu = 1e13, kExaminationMacsOfGpu = 1e15;
constexpr int64_t kLiveRunsOfSolver = 8;
constexpr int64_t kConnectionsMost = 4096;  // a connection carries any number of calls
constexpr double kMemoryShare = 0.75, kMemoryShareOfGpu = 0.9;
// A core that looks out for work is taken from nobody.
constexpr int kCoresToSpare = 4;
constexpr int64_t kWatchMicroseconds = 1000;
constexpr int kSolversOfGpu = 2;  // a stream each: one solves while the other hands out results

template <class T>
std::string NumberText(T value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  if constexpr (std::is_floating_point_v<T>) return ShortestText(value);
  return absl::StrCat(value);
}

template <class T>
absl::Status CheckRange(std::string_view name, T value, double least, double most) {
  const auto number = static_cast<double>(value);
  if (number >= least && number <= most) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(absl::StrFormat(
      "--%s=%s is not within [%.15g, %.15g]", std::string(name), NumberText(value), least, most));
}

absl::Status CheckTexts(const Options& options) {
  if (options.models.empty()) return absl::InvalidArgumentError("--models= names no folder");
  const bool gpu = options.device.starts_with("cuda:") && options.device.size() > 5 &&
                   options.device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (options.device != "cpu" && options.device != "cuda" && options.device != "auto" && !gpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", options.device, " is none of cpu, cuda, cuda:N, auto"));
  }
  if (options.log_level != "debug" && options.log_level != "info" && options.log_level != "warn" &&
      options.log_level != "error") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_level=", options.log_level, " is none of debug, info, warn, error"));
  }
  if (options.log_format != "logfmt" && options.log_format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_format=", options.log_format, " is none of logfmt, json"));
  }
  HS_RETURN_IF_ERROR(
      Annotate(ParseHostPort(options.address, /*port_min=*/0).status(), "--address"));
  HS_RETURN_IF_ERROR(
      Annotate(ParseHostPort(options.admin_address, /*port_min=*/0).status(), "--admin_address"));
  return Annotate(ParseHostPort(options.http_address, /*port_min=*/0).status(), "--http_address");
}

}  // namespace

std::vector<OptionLine> OptionLines(const Options& options) {
  return {
#define HYPERSERVE_LINE(name, value, unit, reason) {#name, options.name, unit, reason},
      HYPERSERVE_TEXT_OPTIONS(HYPERSERVE_LINE)
#undef HYPERSERVE_LINE
#define HYPERSERVE_LINE(type, name, value, least, most, unit, reason) \
  {#name, NumberText<type>(options.name), unit, reason},
          HYPERSERVE_NUMBER_OPTIONS(HYPERSERVE_LINE)
#undef HYPERSERVE_LINE
  };
}

Options InForce(Options options, const Machine& machine) {
  if (options.device == "auto") options.device = machine.gpus.empty() ? "cpu" : "cuda";
  const bool cpu = options.device == "cpu";
  const auto decide = [](auto& value, auto choice) {
    if (value == 0) value = choice;
  };
  decide(options.solvers, cpu ? machine.cores : kSolversOfGpu);
  decide(options.pending_macs_max, cpu ? kPendingMacsOfCore * options.solvers : kPendingMacsOfGpu);
  decide(options.batch_macs_max, cpu ? kBatchMacsOfCore : kBatchMacsOfGpu);
  decide(options.examination_macs_max, cpu ? kExaminationMacsOfCpu : kExaminationMacsOfGpu);
  decide(options.evaluation_macs_fixed, cpu ? kFixedMacsOfCore : kFixedMacsOfGpu);
  decide(options.batch_rows_max, cpu ? kBatchRowsOfCpu : kBatchRowsOfGpu);
  decide(options.queue_rows_max,
         std::max(cpu ? kQueueRowsOfCpu : kQueueRowsOfGpu, options.request_rows_max));
  decide(options.request_rows_max,
         std::min(cpu ? kRequestRowsOfCpu : kRequestRowsOfGpu, options.queue_rows_max));
  decide(options.chunk_rows_default, cpu ? kChunkRowsOfCpu : kChunkRowsOfGpu);
  decide(options.live_runs_max, kLiveRunsOfSolver * options.solvers);
  decide(options.watch_max_us, machine.cores >= kCoresToSpare ? kWatchMicroseconds : 0);
  const int64_t connections = SharesOf(machine.descriptors).calls;
  decide(options.connections_max, std::min(connections, kConnectionsMost));
  decide(options.memory_max, kMemoryShare * machine.memory_bytes);
  decide(options.device_memory_max, kMemoryShareOfGpu * machine.gpu_memory_bytes);
  // A lowered maximum also lowers the default, so that an operator need not set both.
  const auto bound = [](auto& value, auto most) { value = std::min(value, most); };
  bound(options.deadline_default_seconds, options.deadline_max_seconds);
  bound(options.reply_bytes_default, options.reply_bytes_max);
  bound(options.chunk_rows_default, options.request_rows_max);
  bound(options.connections_max, connections);
  return options;
}

std::vector<std::string> DevicesOf(const Options& options, const Machine& machine) {
  return options.device == "cuda" && !machine.gpus.empty() ? machine.gpus
                                                           : std::vector{options.device};
}

std::set<std::string> AllowedCode(const Options& options) {
  const std::vector<std::string> names = absl::StrSplit(options.allow_code, ',', absl::SkipEmpty());
  return {names.begin(), names.end()};
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

CallLimits LimitsOf(const Options& options) {
  return {.request_rows_max = options.request_rows_max,
          .receive_bytes_max = options.receive_bytes_max,
          .request_bytes_max = options.queue_bytes_max,
          .request_macs_max = options.pending_macs_max,
          .batch_macs_max = options.batch_macs_max,
          .live_runs_max = options.live_runs_max,
          .steps_max = options.steps_max,
          .save_at_max = options.save_at_max,
          .reply_bytes_default = options.reply_bytes_default,
          .reply_bytes_max = options.reply_bytes_max,
          .stream_rows_max = options.stream_rows_max,
          .chunk_rows_default = options.chunk_rows_default,
          .deadline_default = Milliseconds(options.deadline_default_seconds),
          .deadline_max = Milliseconds(options.deadline_max_seconds),
          .request_arrival_max = Milliseconds(options.request_arrival_max_seconds),
          .retry_pushback = std::chrono::milliseconds(options.retry_pushback_ms)};
}

BatcherOptions BatcherOptionsOf(const Options& options) {
  return {.batch_rows_max = options.batch_rows_max,
          .queue_delay_max = std::chrono::microseconds(options.queue_delay_max_us),
          .queue_rows_max = options.queue_rows_max,
          .queue_bytes_max = options.queue_bytes_max,
          .pending_macs_max = static_cast<int64_t>(options.pending_macs_max),
          .live_queues_max = options.live_queues_max,
          .live_runs_max = options.live_runs_max,
          .solvers = options.solvers,
          .turn_max = std::chrono::microseconds(options.turn_max_us),
          .watch_max = std::chrono::microseconds(options.watch_max_us),
          .evaluation_macs_fixed = options.evaluation_macs_fixed,
          .on_batch = nullptr};
}

absl::Status ValidateOptions(const Options& options) {
#define HYPERSERVE_CHECK(type, name, value, least, most, ...) \
  HS_RETURN_IF_ERROR(CheckRange<type>(#name, options.name, least, most));
  HYPERSERVE_NUMBER_OPTIONS(HYPERSERVE_CHECK)
#undef HYPERSERVE_CHECK
  if (options.queue_rows_max > 0 && options.request_rows_max > options.queue_rows_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--request_rows_max=", options.request_rows_max, " is more than --queue_rows_max=",
        options.queue_rows_max, ": such a request could never be queued"));
  }
  return CheckTexts(options);
}

std::string OptionsHelp() {
  std::string page =
      "hyperserve: serves hypersolved continuous-depth models\n\n"
      "  hyperserve --models FOLDER [flags]    serve a model repository\n"
      "  hyperserve --check FOLDER             say what in a model folder does not fit\n"
      "  hyperserve --version                  say what this is\n\n"
      "Flags (--flagfile=FILE reads them from a file, one a line):\n\n";
  for (const OptionLine& line : OptionLines({})) {
    absl::StrAppend(&page, "  --", line.name, "=", line.value, "  (", line.unit, ")\n      ",
                    line.reason, "\n");
  }
  return page;
}

std::string OptionsMarkdown() {
  std::string table = "| flag | default | unit | why |\n|---|---|---|---|\n";
  for (const OptionLine& line : OptionLines({})) {
    absl::StrAppend(&table, "| `--", line.name, "` | ",
                    line.value.empty() ? "" : absl::StrCat("`", line.value, "`"), " | ", line.unit,
                    " | ", line.reason, " |\n");
  }
  return table;
}

}  // namespace hyperserve
