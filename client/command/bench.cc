#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/percentile.h"
#include "client/frame/rows.h"
#include "client/frame/session.h"
#include "client/frame/table.h"
#include "client/wire_tensor.h"
#include "core/base/status.h"
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "programs/progress.h"

namespace hyperserve {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPauseAfterFailure{50};

// One request, as the client saw it.
struct Sent {
  double start = 0;    // seconds since 1970
  double seconds = 0;  // until its reply
  absl::Status status;
  int64_t generation = 0;
  int64_t rows_failed = 0;
};

// The content of the requests: the rows of the input in turn, or samples with ascending row
// numbers.
struct Load {
  v1::GetModelReply model;
  Plan plan;
  std::optional<HostTensor> rows;
  int64_t rows_per_request = 1;
  RowTerms terms;  // of the rows of the input, or of each request
};

int64_t CountFailed(const v1::SolveInfo& info, int64_t rows) {
  if (info.row_status_size() == 1) {
    return info.row_status(0) == v1::ROW_STATUS_CONVERGED ? 0 : rows;
  }
  int64_t failed = 0;
  for (const int status : info.row_status()) failed += status != v1::ROW_STATUS_CONVERGED ? 1 : 0;
  return failed;
}

absl::StatusOr<v1::SolveInfo> Ask(Client& client, const Load& load, int64_t number) {
  v1::SolveOptions options = SolveOptionsFromFlags(
      load.model, load.plan,
      load.rows_per_request * StatesBytes(load.model, load.model.save_at_size()));
  if (!options.request_id().empty()) {
    options.set_request_id(absl::StrCat(options.request_id(), ":", number));
  }
  if (!load.rows) {
    SetRowTerms(load.terms, 0, load.rows_per_request, options);
    v1::SampleRequest request;
    *request.mutable_options() = std::move(options);
    request.set_rows(load.rows_per_request);
    request.set_seed(absl::GetFlag(FLAGS_seed));
    request.set_first_row(number * load.rows_per_request);
    HS_ASSIGN_OR_RETURN(auto reply, client.Sample(std::move(request), DeadlineFromFlags()));
    return std::move(*reply.mutable_info());
  }
  const int64_t places = load.rows->shape[0] / load.rows_per_request;
  const int64_t begin = number % places * load.rows_per_request;
  v1::Tensor inputs = ToWire(RowsOf(load.rows->view(), begin, load.rows_per_request));
  SetRowTerms(load.terms, begin, load.rows_per_request, options);
  if (IsFlow(load.model)) {
    v1::LogProbRequest request;
    *request.mutable_options() = std::move(options);
    *request.mutable_inputs() = std::move(inputs);
    HS_ASSIGN_OR_RETURN(auto reply, client.LogProb(std::move(request), DeadlineFromFlags()));
    return std::move(*reply.mutable_info());
  }
  if (!IsClassifier(load.model)) {
    v1::SolveRequest request;
    *request.mutable_options() = std::move(options);
    *request.mutable_inputs() = std::move(inputs);
    HS_ASSIGN_OR_RETURN(auto reply, client.Solve(std::move(request), DeadlineFromFlags()));
    return std::move(*reply.mutable_info());
  }
  v1::ClassifyRequest request;
  *request.mutable_options() = std::move(options);
  *request.mutable_inputs() = std::move(inputs);
  HS_ASSIGN_OR_RETURN(auto reply, client.Classify(std::move(request), DeadlineFromFlags()));
  return std::move(*reply.mutable_info());
}

Sent Measure(Client& client, const Load& load, int64_t number) {
  Sent sent;
  sent.start =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Steady::time_point begin = Steady::now();
  const absl::StatusOr<v1::SolveInfo> info = Ask(client, load, number);
  sent.seconds = std::chrono::duration<double>(Steady::now() - begin).count();
  sent.status = info.status();
  if (info.ok()) {
    sent.generation = info->generation();
    sent.rows_failed = CountFailed(*info, load.rows_per_request);
  }
  return sent;
}

// A closed loop: each thread has a client of its own and always one request under way.
std::vector<Sent> RunLoop(const Load& load) {
  const int concurrency = absl::GetFlag(FLAGS_concurrency);
  const int64_t count = absl::GetFlag(FLAGS_count);
  const auto end = Steady::now() + absl::ToChronoNanoseconds(absl::GetFlag(FLAGS_duration));
  ClientOptions options = ClientOptionsFromFlags();
  options.retry = {.attempts_max = 1};  // failures are counted, not hidden by retries
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::vector<Sent> all;
  Progress progress("bench", count, "requests");
  std::vector<std::thread> threads;
  for (int i = 0; i < concurrency; ++i) {
    threads.emplace_back([&] {
      Client client(options);
      std::vector<Sent> mine;
      while (Steady::now() < end) {
        const int64_t number = next++;
        if (count > 0 && number >= count) break;
        mine.push_back(Measure(client, load, number));
        progress.Advance(1);
        // Pause before the next call to a daemon that is full or gone.
        if (!mine.back().status.ok()) {
          std::this_thread::sleep_until(std::min(end, Steady::now() + kPauseAfterFailure));
        }
      }
      const std::lock_guard lock(mutex);
      all.insert(all.end(), mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

absl::Status WriteJsonLines(const std::string& path, const std::vector<Sent>& all, int64_t rows) {
  std::string text;
  for (const Sent& sent : all) {
    JsonWriter json;
    json.BeginObject().Field("start", sent.start).Field("seconds", sent.seconds);
    json.Field("code", absl::StatusCodeToString(sent.status.code()))
        .Field("generation", sent.generation);
    json.Field("rows", rows).Field("rows_failed", sent.rows_failed).EndObject();
    absl::StrAppend(&text, json.Take(), "\n");
  }
  return WriteOutFile(path, text);
}

struct Report {
  double seconds = 0;
  int64_t ok = 0, failed = 0, rows_failed = 0, rows = 0;
  std::map<std::string, int64_t> codes;
  std::set<int64_t> generations;
  std::vector<double> latencies;  // of requests with status OK
  absl::Status first_failure;
};

Report Summarize(const std::vector<Sent>& all, double seconds, int64_t rows_per_request) {
  Report report{.seconds = seconds};
  for (const Sent& sent : all) {
    ++report.codes[absl::StatusCodeToString(sent.status.code())];
    report.rows_failed += sent.rows_failed;
    if (!sent.status.ok()) {
      ++report.failed;
      report.first_failure.Update(sent.status);
      continue;
    }
    ++report.ok;
    report.rows += rows_per_request;
    report.generations.insert(sent.generation);
    report.latencies.push_back(sent.seconds);
  }
  return report;
}

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};

void PrintJson(const Report& report, const Load& load) {
  JsonWriter json;
  json.BeginObject().Field("model", load.model.model().name());
  json.Field("plan", PrintPlan(load.plan)).Field("rows_per_request", load.rows_per_request);
  json.Field("concurrency", absl::GetFlag(FLAGS_concurrency)).Field("seconds", report.seconds);
  json.Field("requests_ok", report.ok).Field("requests_failed", report.failed);
  json.Field("rows_failed", report.rows_failed);
  json.Field("requests_per_second", static_cast<double>(report.ok) / report.seconds);
  json.Field("rows_per_second", static_cast<double>(report.rows) / report.seconds);
  json.Field("generations", report.generations).Key("codes").BeginObject();
  for (const auto& [code, count] : report.codes) json.Field(code, count);
  json.EndObject().Key("latency_seconds").BeginObject();
  for (const auto& [name, p] : kPercentiles) json.Field(name, Percentile(report.latencies, p));
  PrintOut(json.EndObject().EndObject().Take() + "\n");
}

void PrintTable(const Report& report, const Load& load) {
  std::string text = absl::StrFormat("%s, plan %s, %s a request, %d at a time, %.2f s\n",
                                     load.model.model().name(), PrintPlan(load.plan),
                                     Counted(load.rows_per_request, "row"),
                                     absl::GetFlag(FLAGS_concurrency), report.seconds);
  absl::StrAppendFormat(&text, "requests/s %.1f  rows/s %.1f\n",
                        static_cast<double>(report.ok) / report.seconds,
                        static_cast<double>(report.rows) / report.seconds);
  if (report.ok > 0) {
    absl::StrAppend(&text, "latency ms ");
    for (const auto& [name, p] : kPercentiles) {
      absl::StrAppendFormat(&text, " %s %.3f", name, 1e3 * Percentile(report.latencies, p));
    }
    absl::StrAppend(&text, "\ngenerations ", absl::StrJoin(report.generations, ", "), "\n");
  }
  for (const auto& [code, count] : report.codes) absl::StrAppend(&text, code, " ", count, "\n");
  if (report.rows_failed > 0) absl::StrAppend(&text, "rows failed ", report.rows_failed, "\n");
  PrintOut(text);
}

absl::StatusOr<Load> LoadFromFlags(const Arguments& arguments) {
  Load load;
  HS_ASSIGN_OR_RETURN(load.plan, PlanFromText("plan", absl::GetFlag(FLAGS_plan)));
  load.rows_per_request = absl::GetFlag(FLAGS_rows);
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(load.model, ChooseModel(client));
  if (arguments.empty()) {
    if (!IsFlow(load.model)) {
      return UsageError(
          absl::StrCat("bench takes INPUT, the rows of a ", load.model.model().kind()));
    }
    HS_RETURN_IF_ERROR(CheckNoInput());
    HS_ASSIGN_OR_RETURN(load.terms,
                        RowTermsFromFlags(load.model, load.plan, load.rows_per_request));
    return load;
  }
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(arguments[0], absl::GetFlag(FLAGS_tensor)));
  HS_ASSIGN_OR_RETURN(const HostTensor rows, FitInput(std::move(file), InputShape(load.model),
                                                      absl::GetFlag(FLAGS_limit)));
  load.rows = ForTier(rows, load.plan.tier);
  if (load.rows->shape[0] < load.rows_per_request) {
    return UsageError(absl::StrCat("--rows=", load.rows_per_request,
                                   ": one request is to have more rows than the input, which has ",
                                   load.rows->shape[0]));
  }
  HS_ASSIGN_OR_RETURN(load.terms, RowTermsFromFlags(load.model, load.plan, load.rows->shape[0]));
  return load;
}

}  // namespace

absl::StatusOr<int64_t> RunBench(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  HS_ASSIGN_OR_RETURN(const Load load, LoadFromFlags(arguments));
  const Steady::time_point begin = Steady::now();
  const std::vector<Sent> all = RunLoop(load);
  if (all.empty()) {
    return WithWayOut(absl::DeadlineExceededError("--duration ended before a request was sent"),
                      "raise --duration");
  }
  const double seconds = std::chrono::duration<double>(Steady::now() - begin).count();
  const Report report = Summarize(all, seconds, load.rows_per_request);
  if (format == OutputFormat::kJson) {
    PrintJson(report, load);
  } else {
    PrintTable(report, load);
  }
  if (const std::string path = absl::GetFlag(FLAGS_json_lines); !path.empty()) {
    HS_RETURN_IF_ERROR(WriteJsonLines(path, all, load.rows_per_request));
  }
  if (report.ok == 0) {
    return Annotate(report.first_failure, "not one request was answered, the first one because");
  }
  return report.failed + report.rows_failed;
}

}  // namespace hyperserve
