// The one page of options: every flag and every limit of the daemon with its default, bounds, unit
// and reason. A new option is one line here: the flag, --help and GetServerInfo follow, and
// server_docs_test compares the table of docs/OPERATIONS.md. Every function here is pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/batching/batcher_options.h"
#include "server/calls/limits.h"

namespace hyperserve {

// Options whose value is text: X(name, default, unit, reason)
#define HYPERSERVE_TEXT_OPTIONS(X)                                                                \
  X(models, "models", "folder", "the model repository that is served")                            \
  X(check, "", "folder",                                                                          \
    "checks this model, repository or candidate, names what does not fit, and exits")             \
  X(allow_code, "", "models",                                                                     \
    "whose field.pt2, which is code with all rights of the daemon, is run: names with commas; "   \
    "empty: none, and such models are refused")                                                   \
  X(device, "auto", "cpu, cuda, cuda:N or auto",                                                  \
    "where models run; cuda: on all GPUs; auto: the same, or the CPU where there is none")        \
  X(address, "127.0.0.1:8500", "host:port", "calls; port 0: any free one")                        \
  X(admin_address, "127.0.0.1:8501", "host:port",                                                 \
    "Admin calls: whoever reaches it can change what is served")                                  \
  X(http_address, "127.0.0.1:8502", "host:port", "/metrics, /livez, /readyz")                     \
  X(ports_file, "", "file", "written as JSON once the daemon is ready, for scripts; empty: none") \
  X(log_level, "info", "debug, info, warn or error",                                              \
    "debug: a line for every call; info: for calls that failed and for what changed")             \
  X(log_format, "logfmt", "logfmt or json", "of each line of the log: key=value, or an object")

// Options whose value is a number: X(type, name, default, least, most, unit, reason). Where the
// reason says what 0 means, InForce puts the real value in its place.
#define HYPERSERVE_NUMBER_OPTIONS(X)                                                               \
  X(int32_t, solvers, 0, 0, 1024, "threads",                                                       \
    "each runs one batch at a time; 0: the cores of the CPU, or two for a GPU")                    \
  X(int64_t, batch_rows_max, 0, 0, 65536, "rows",                                                  \
    "of one batch; larger requests are split and merged again; 0: 256 on a CPU, 65536 on a GPU")   \
  X(int64_t, queue_delay_max_us, 500, 0, 1000000, "microseconds",                                  \
    "the oldest row waits no longer for company, and only while all solvers are busy")             \
  X(int64_t, queue_rows_max, 0, 0, 1 << 24, "rows",                                                \
    "waiting in all queues; more are shed with RESOURCE_EXHAUSTED; 0: 16384 on a CPU, 4194304 on " \
    "a GPU")                                                                                       \
  X(int64_t, queue_bytes_max, 256 << 20, 1 << 20, int64_t{1} << 40, "bytes",                       \
    "of inputs and outputs of all that is not answered yet, and again of replies that are not "    \
    "read yet; half of the latter for one client")                                                 \
  X(double, pending_macs_max, 0, 0, 1e18, "MACs",                                                  \
    "predicted, of all that is not answered yet; 0: a few minutes of work, 3e12 for each "         \
    "solver on a CPU, 1e15 on a GPU")                                                              \
  X(double, batch_macs_max, 0, 0, 1e18, "MACs",                                                    \
    "of one evaluation of f on a batch, which nothing interrupts: costly models get fewer rows; "  \
    "0: 5e7 on a CPU (a few milliseconds), 1e11 on a GPU")                                         \
  X(double, evaluation_macs_fixed, 0, 0, 1e18, "MACs",                                             \
    "what an evaluation costs beside its rows: below it long and short solves share a batch; "     \
    "0: 5e5 on a CPU, 5e8 on a GPU")                                                               \
  X(int64_t, live_queues_max, 64, 1, 4096, "queues",                                               \
    "distinct plans that wait or run at once; each costs a look whenever a batch is chosen")       \
  X(int64_t, live_runs_max, 0, 0, 65536, "batches",                                                \
    "in memory, those that gave way to shorter ones among them; 0: eight for each solver")         \
  X(int64_t, turn_max_us, 500, 0, 600000000, "microseconds",                                       \
    "of a batch, at least one evaluation of f; then shorter work goes first")                      \
  X(int64_t, watch_max_us, 0, 0, 1000000, "microseconds",                                          \
    "an idle solver looks out for work, on its core, before it sleeps, where work came as soon "   \
    "the last time; 0: 1000 on four cores or more, else none; 1 is as good as none")               \
  X(int64_t, request_rows_max, 0, 0, 1 << 24, "rows",                                              \
    "of one request or chunk; at most queue_rows_max, else it could never be queued; 0: 16384 on " \
    "a CPU, 1048576 on a GPU")                                                                     \
  X(int64_t, steps_max, 10000, 1, 10000000, "steps",                                               \
    "K of a fixed plan, and steps of an adaptive row, accepted and rejected")                      \
  X(int64_t, save_at_max, 1000, 0, 1000000, "depths",                                              \
    "of one Solve; each is a state in the reply")                                                  \
  X(int64_t, reply_bytes_default, (4 << 20) - (64 << 10), 1024, int64_t{1} << 31, "bytes",         \
    "of a reply unless the request raises max_reply_bytes: ordinary clients receive 4 MiB")        \
  X(int64_t, reply_bytes_max, 64 << 20, 1024, int64_t{1} << 31, "bytes",                           \
    "the most that max_reply_bytes may ask")                                                       \
  X(int32_t, receive_bytes_max, 64 << 20, 1 << 16, 1 << 30, "bytes", "of one request")             \
  X(double, memory_max, 0, 0, 1e15, "bytes",                                                       \
    "that the process may take beside mapped files: beyond it calls are shed; a quarter of it is " \
    "for connections and what arrives on them; 0: "                                                \
    "three quarters of the machine's or container's")                                              \
  X(double, device_memory_max, 0, 0, 1e15, "bytes",                                                \
    "that the process may take of each GPU for tensors and captured steps: batches that need "     \
    "more are halved; 0: nine tenths of the smallest")                                             \
  X(int64_t, connections_max, 0, 0, 1 << 20, "connections",                                        \
    "at once for calls, half of them from one address; 0: half of the descriptors that the "       \
    "process may open, at most 4096; Admin has a sixteenth of them, HTTP an eighth")               \
  X(double, connection_idle_max_seconds, 600, 1, 86400, "seconds",                                 \
    "without a call; then the connection is closed, and its client opens another when it needs "   \
    "it")                                                                                          \
  X(double, connection_start_max_seconds, 10, 0.1, 3600, "seconds",                                \
    "until a connection has begun to speak HTTP/2; a silent one is closed")                        \
  X(double, ping_interval_min_seconds, 0.9, 0, 3600, "seconds",                                    \
    "between two keepalive pings of a client; one that pings more often loses its connection")     \
  X(int32_t, connection_calls_max, 1000, 1, 1 << 20, "calls",                                      \
    "at once on one connection; a client's further ones wait at its end")                          \
  X(int64_t, stream_rows_max, int64_t{1} << 40, 1, int64_t{1} << 60, "rows",                       \
    "of one SampleStream; its deadline is the nearer bound")                                       \
  X(int64_t, chunk_rows_default, 0, 0, 1 << 24, "rows",                                            \
    "of a chunk of SampleStream where the client names none and the reply's limit allows; 0: "     \
    "4096 on a CPU, 65536 on a GPU")                                                               \
  X(double, deadline_default_seconds, 30, 0.001, 86400, "seconds",                                 \
    "of calls that bring no deadline; streams and Admin: deadline_max_seconds")                    \
  X(double, deadline_max_seconds, 600, 0.001, 86400, "seconds", "every wait is bounded")           \
  X(double, request_arrival_max_seconds, 30, 0.001, 86400, "seconds",                              \
    "from the first bytes of a call to its whole request, where its deadline is not nearer")       \
  X(int64_t, retry_pushback_ms, 50, 0, 60000, "milliseconds",                                      \
    "grpc-retry-pushback-ms that goes with RESOURCE_EXHAUSTED, about the time of a full batch, "   \
    "and with UNAVAILABLE while models load")                                                      \
  X(double, drain_seconds, 20, 0, 3600, "seconds",                                                 \
    "after SIGTERM, for what is in flight; below the 30 s that Kubernetes gives")                  \
  X(double, gate_margin, 0.02, 0, 1, "share",                                                      \
    "a candidate may be worse than the active generation by this, against noise of the probe")     \
  X(double, poll_seconds, 1, 0, 3600, "seconds",                                                   \
    "between two looks at the folder for new generations; 0: never")                               \
  X(int64_t, publish_queue_max, 8, 1, 1000, "candidates",                                          \
    "waiting for the gate, and as many rollbacks; more are RESOURCE_EXHAUSTED")                    \
  X(double, examination_macs_max, 0, 0, 1e18, "MACs",                                              \
    "of the gate's solves for one candidate; more is refused; 0: 1e13 on a CPU (about ten "        \
    "minutes of a core), 1e15 on a GPU")                                                           \
  X(double, examination_seconds_max, 300, 0.001, 86400, "seconds",                                 \
    "of the gate's measurement of one candidate: others wait behind it")                           \
  X(bool, read_only, false, 0, 1, "true or false", "refuses Publish and Rollback")

// One value for each line of the page, by name. A default-constructed Options has the defaults, 0
// and `auto` among them, which mean nothing yet: InForce says what they stand for.
struct Options {
#define HYPERSERVE_FIELD(name, value, ...) std::string name = value;
  HYPERSERVE_TEXT_OPTIONS(HYPERSERVE_FIELD)
#undef HYPERSERVE_FIELD
#define HYPERSERVE_FIELD(type, name, value, ...) type name = value;
  HYPERSERVE_NUMBER_OPTIONS(HYPERSERVE_FIELD)
#undef HYPERSERVE_FIELD
};

// One line of the page, as text. The value reads back as the same number.
struct OptionLine {
  std::string name, value, unit, reason;
};
// All lines with the values of `options`, in the page's order.
std::vector<OptionLine> OptionLines(const Options& options);

// The facts of a machine that defaults depend on.
struct Machine {
  int cores = 1;
  std::vector<std::string> gpus;  // "cuda:0"
  int64_t descriptors = 1024;     // that the process may open
  double memory_bytes = 8e9;      // of the machine or, where that is less, of the container
  double gpu_memory_bytes = 0;    // of the smallest GPU
};
// The options that the daemon runs with: `auto` and 0 are replaced by what they mean on this
// machine, and defaults of requests are lowered to their maxima. GetServerInfo tells these.
Options InForce(Options options, const Machine& machine);

// The devices that `device` in force means, in their order: one, or all GPUs.
std::vector<std::string> DevicesOf(const Options& options, const Machine& machine);

// The names in allow_code.
std::set<std::string> AllowedCode(const Options& options);

// An option's seconds, as durations.
std::chrono::milliseconds Milliseconds(double seconds);

// The limits of one call, and the options of the batcher without on_batch. Precondition: `options`
// come from InForce.
CallLimits LimitsOf(const Options& options);
// The caller adds the functions that the batcher calls.
BatcherOptions BatcherOptionsOf(const Options& options);

// kInvalidArgument names the flag, its value and the values that are allowed.
absl::Status ValidateOptions(const Options& options);

// The text of --help.
std::string OptionsHelp();
// The table of flags in docs/OPERATIONS.md.
std::string OptionsMarkdown();

}  // namespace hyperserve
