#include "server/rpc/call.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/plan/row_status.h"
#include "server/batching/work.h"
#include "server/calls/limits.h"
#include "server/clock/clock.h"
#include "server/clock/patience.h"
#include "server/metrics/families.h"
#include "server/metrics/log.h"
#include "server/metrics/metrics.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

constexpr size_t kRequestIdMax = 128;
// gRPC's limit on all metadata of a reply is 8 KiB.
constexpr size_t kMessageBytesMax = 2048;
constexpr size_t kClientNameBytesMax = 64;

std::string MakeRequestId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return absl::StrFormat("%016x", random());
}

Clock::TimePoint DeadlineOf(const grpc::CallbackServerContext& context, CallKind kind,
                            const Environment& environment, Clock::TimePoint now) {
  const CallLimits& limits = environment.limits;
  // gRPC's own type: a std::chrono time point overflows for a deadline centuries away.
  const gpr_timespec asked = gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_REALTIME);
  if (gpr_time_cmp(asked, gpr_inf_future(GPR_CLOCK_REALTIME)) == 0) {
    return now + (kind == CallKind::kUnary ? limits.deadline_default : limits.deadline_max);
  }
  const gpr_timespec left = gpr_time_sub(asked, gpr_now(GPR_CLOCK_REALTIME));
  const std::chrono::duration<double> seconds(static_cast<double>(left.tv_sec) +
                                              1e-9 * left.tv_nsec);
  return now + std::chrono::duration_cast<Clock::TimePoint::duration>(
                   std::min<std::chrono::duration<double>>(seconds, limits.deadline_max));
}

const char* CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::OK:
      return "OK";
    case grpc::CANCELLED:
      return "CANCELLED";
    case grpc::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case grpc::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case grpc::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case grpc::FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case grpc::ABORTED:
      return "ABORTED";
    case grpc::UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case grpc::UNAVAILABLE:
      return "UNAVAILABLE";
    default:
      return "INTERNAL";
  }
}

// Successes are logged at debug, our own faults at error, all other failures at info.
LogLevel LevelOf(grpc::StatusCode code) {
  if (code == grpc::OK) return LogLevel::kDebug;
  return code == grpc::INTERNAL ? LogLevel::kError : LogLevel::kInfo;
}

// The line of a call that has ended. Calls that were shed share one line a second.
struct EndedCall {
  std::string_view name, id, model, plan;
  int64_t rows = 0;
  double seconds = 0;
};

void LogCall(Environment& environment, const EndedCall& call, const grpc::Status& status) {
  int64_t others = 0;
  if (status.error_code() == grpc::RESOURCE_EXHAUSTED) {
    const CrowdedEvents::Turn turn = environment.shed_calls.Note(environment.clock->Now());
    if (!turn.log) return;
    others = turn.others;
  }
  if (!Logs(LevelOf(status.error_code()))) return;
  LogLine line = NewLogLine();
  line.Add("call", call.name)
      .Add("id", call.id)
      .Add("model", call.model)
      .Add("plan", call.plan)
      .Add("rows", call.rows)
      .Add("code", CodeName(status.error_code()))
      .Add("seconds", call.seconds);
  if (others > 0) line.Add("others_shed", others);
  if (!status.ok()) line.Add("message", status.error_message());
  Log(LevelOf(status.error_code()), line);
}

double Sum(const auto& values) {
  double sum = 0;
  for (const auto value : values) sum += static_cast<double>(value);
  return sum;
}

}  // namespace

std::string PeerOf(const grpc::ServerContextBase& context) {
  return ClientOf(context.peer(), "").peer;
}

absl::Status CheckRequestId(const std::string& id) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
  if (printable && id.size() <= kRequestIdMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request_id: ", id.size(), " characters; at most ",
                                                 kRequestIdMax,
                                                 " printable ASCII characters wanted"));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  auto code = static_cast<grpc::StatusCode>(status.raw_code());
  if (std::string_view(CodeName(code)) == "INTERNAL") code = grpc::INTERNAL;
  return {code, Utf8({status.message().data(), status.message().size()}, kMessageBytesMax)};
}

Call::Call(Environment* environment, grpc::CallbackServerContext* context, std::string_view name,
           CallKind kind)
    : environment_(environment),
      context_(context),
      name_(name),
      kind_(kind),
      arrival_(environment->clock->Now()),
      deadline_(DeadlineOf(*context, kind, *environment, arrival_)),
      id_(MakeRequestId()) {
  ++environment_->calls_in_flight;
  environment_->metrics->Change(Metric::kRequestsInFlight, {name_}, 1);
}

Call::~Call() {
  environment_->metrics->Change(Metric::kRequestsInFlight, {name_}, -1);
  if (bound_) --environment_->solving_calls;
  --environment_->calls_in_flight;
}

void Call::TakeId(const std::string& asked) {
  id_problem_ = CheckRequestId(asked);
  if (id_problem_.ok() && !asked.empty()) id_ = asked;
}

Patience Call::patience() const {
  return {.deadline = deadline_,
          .cancelled = [flag = cancelled_] { return flag->load(std::memory_order_relaxed); }};
}

absl::Status Call::CheckUnread() const {
  return environment_->replies.Check(PeerOf(*context_), environment_->limits.request_bytes_max);
}

absl::StatusOr<std::shared_ptr<Registry>> Call::Admit() {
  HS_RETURN_IF_ERROR(id_problem_);
  if (environment_->draining) {
    return absl::UnavailableError("the server is shutting down; try another one");
  }
  std::shared_ptr<Registry> registry = environment_->registry();
  if (registry == nullptr) {
    came_too_early_ = true;
    return absl::UnavailableError("the server is loading its models; try again");
  }
  HS_RETURN_IF_ERROR(CheckUnread());
  return registry;
}

absl::StatusOr<std::shared_ptr<const ServedModel>> Call::Pin(const std::string& model) {
  HS_ASSIGN_OR_RETURN(const auto registry, Admit());
  if (environment_->memory_full) {
    return absl::ResourceExhaustedError("the process holds memory_max; try again");
  }
  HS_ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> served, registry->Pin(model));
  model_label_ = served->name;
  return served;
}

ClientKey ClientOf(std::string_view peer, std::string_view header) {
  // A Unix socket has no port.
  if (!peer.starts_with("unix")) peer = peer.substr(0, peer.rfind(':'));
  return {.peer = std::string(peer), .name = std::string(header.substr(0, kClientNameBytesMax))};
}

void Call::Bind(Prepared& prepared) {
  plan_label_ = prepared.plan.label;
  counted_plan_ = environment_->metrics->LabelOf(
      {.model = model_label_, .plan = plan_label_, .is_default = prepared.plan.is_default});
  bound_ = true;
  ++environment_->solving_calls;
  prepared.work.patience = patience();
  const auto& headers = context_->client_metadata();
  const auto named = headers.find({kClientHeader.data(), kClientHeader.size()});
  const ClientKey client = ClientOf(
      context_->peer(), named == headers.end()
                            ? std::string_view()
                            : std::string_view(named->second.data(), named->second.size()));
  prepared.work.client = client;
  for (Rung& rung : prepared.later) {
    rung.work.patience = prepared.work.patience;
    rung.work.client = client;
  }
}

void Call::Record(const absl::StatusOr<WorkResult>& result, const WorkTimes& times) {
  retry_after_ = times.retry_after;
  Metrics& metrics = *environment_->metrics;
  const auto observe = [&](Metric metric, const std::optional<double>& seconds) {
    if (seconds) metrics.Observe(metric, {model_label_}, *seconds);
  };
  observe(Metric::kQueueDuration, times.queue_seconds);
  observe(Metric::kSolveDuration, times.solve_seconds);
  if (!result.ok()) return;
  const auto& rows = result->rows;
  rows_ += static_cast<int64_t>(rows.status.size());
  for (const RowStatus status : {RowStatus::kConverged, RowStatus::kStepLimit,
                                 RowStatus::kStepUnderflow, RowStatus::kNonFinite}) {
    const auto count = std::count(rows.status.begin(), rows.status.end(), status);
    if (count > 0) {
      metrics.Increment(Metric::kRows, {model_label_, counted_plan_, RowStatusName(status)},
                        static_cast<double>(count));
    }
  }
  metrics.Increment(Metric::kFieldEvaluations, {model_label_, counted_plan_}, Sum(rows.nfe));
  metrics.Increment(Metric::kCorrectionEvaluations, {model_label_, counted_plan_},
                    Sum(rows.correction_evaluations));
  metrics.Increment(Metric::kMacs, {model_label_, counted_plan_}, Sum(rows.macs));
  if (rows.solved_again > 0) {
    metrics.Increment(Metric::kRowsSolvedAgain, {model_label_, counted_plan_},
                      static_cast<double>(rows.solved_again));
  }
}

// A stream lasts as long as its client takes to read it, and Admin's calls as long as examinations:
// beside them the others would not be seen.
void Call::CountDuration(double seconds) const {
  Metrics& metrics = *environment_->metrics;
  metrics.Increment(Metric::kRequestSeconds, {model_label_, name_}, seconds);
  if (kind_ != CallKind::kUnary) return;
  metrics.Observe(Metric::kRequestDuration, {model_label_}, seconds);
  if (!bound_) return;
  metrics.Increment(Metric::kPlanRequests, {model_label_, counted_plan_});
  metrics.Increment(Metric::kPlanSeconds, {model_label_, counted_plan_}, seconds);
}

grpc::Status Call::End(const absl::Status& status) {
  const std::string& folder = environment_->models_folder;
  grpc::Status wire = ToGrpc(
      folder.empty() ? status
                     : absl::Status(status.code(),
                                    absl::StrReplaceAll(status.message(), {{folder + "/", ""}})));
  const double seconds =
      std::chrono::duration<double>(environment_->clock->Now() - arrival_).count();
  const char* const code = CodeName(wire.error_code());
  Metrics& metrics = *environment_->metrics;
  metrics.Increment(Metric::kRequests, {model_label_, name_, code});
  if (status.ok()) CountDuration(seconds);
  if (rows_ > 0) {
    metrics.Observe(Metric::kRequestRows, {model_label_}, static_cast<double>(rows_));
  }
  LogCall(*environment_,
          {.name = name_,
           .id = id_,
           .model = model_label_,
           .plan = plan_label_,
           .rows = rows_,
           .seconds = seconds},
          wire);
  context_->AddTrailingMetadata("hyperserve-request-id", id_);
  if (came_too_early_ || (wire.error_code() == grpc::RESOURCE_EXHAUSTED && retry_helps_)) {
    const auto pushback = std::max(environment_->limits.retry_pushback, retry_after_);
    context_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(pushback.count()));
  }
  return wire;
}

}  // namespace hyperserve
