#include "server/rpc/wire.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_grid.h"
#include "server/batching/work.h"
#include "server/calls/resolve.h"
#include "server/calls/served_plan.h"
#include "server/registry/served_model.h"

namespace hyperserve {
namespace {

absl::StatusOr<Tier> TierFromWire(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_UNSPECIFIED:
    case v1::TIER_EXACT:
      return Tier::kExact;
    case v1::TIER_FAST:
      return Tier::kFast;
    case v1::TIER_DOUBLE:
      return Tier::kDouble;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("tier: ", static_cast<int>(tier),
                       " is unknown; this server knows TIER_EXACT, TIER_FAST and TIER_DOUBLE"));
  }
}

absl::StatusOr<Plan> StructuredPlan(const v1::Plan& wire) {
  Plan plan;
  HS_ASSIGN_OR_RETURN(plan.tier, TierFromWire(wire.tier()));
  switch (wire.choice_case()) {
    case v1::Plan::kFixed: {
      HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(wire.fixed().method()));
      StepGrid grid;
      if (const std::string& text = wire.fixed().grid(); !text.empty()) {
        HS_ASSIGN_OR_RETURN(grid, ParseStepGrid(text));
      }
      plan.choice = FixedPlan{.method = method,
                              .steps = wire.fixed().steps(),
                              .hypersolved = wire.fixed().hypersolved(),
                              .grid = std::move(grid)};
      break;
    }
    case v1::Plan::kAdaptive: {
      HS_ASSIGN_OR_RETURN(const MethodChoice method, ParseMethod(wire.adaptive().method()));
      plan.choice = AdaptivePlan{
          .method = method, .rtol = wire.adaptive().rtol(), .atol = wire.adaptive().atol()};
      break;
    }
    case v1::Plan::kAutomatic: {
      AutoPlan automatic;
      if (wire.automatic().target_error() != 0) {
        automatic.target_error = wire.automatic().target_error();
      }
      if (wire.automatic().time_budget_seconds() != 0) {
        automatic.time_budget_seconds = wire.automatic().time_budget_seconds();
      }
      automatic.per_row = wire.automatic().per_row();
      plan.choice = automatic;
      break;
    }
    default:
      plan.choice = DefaultPlan{};
  }
  HS_RETURN_IF_ERROR(ValidatePlan(plan));
  return plan;
}

constexpr char kDtypePrefix[] = "DTYPE_";  // the wire's names are ours behind this prefix

std::optional<Dtype> DtypeFromWire(v1::Dtype dtype) {
  const absl::string_view name = absl::StripPrefix(v1::Dtype_Name(dtype), kDtypePrefix);
  return DtypeFromName({name.data(), name.size()});
}

absl::StatusOr<std::optional<Dtype>> ReplyDtypeFromWire(v1::Dtype wire) {
  if (wire == v1::DTYPE_UNSPECIFIED) return std::optional<Dtype>();
  const std::optional<Dtype> dtype = DtypeFromWire(wire);
  if (dtype) return dtype;
  return absl::InvalidArgumentError(absl::StrCat(static_cast<int>(wire), " is unknown"));
}

v1::Dtype DtypeToWire(Dtype dtype) {
  v1::Dtype wire = v1::DTYPE_UNSPECIFIED;
  v1::Dtype_Parse(absl::StrCat(kDtypePrefix, Absl(DtypeName(dtype))), &wire);
  return wire;
}

v1::RowStatus RowStatusToWire(RowStatus status) {
  switch (status) {
    case RowStatus::kConverged:
      return v1::ROW_STATUS_CONVERGED;
    case RowStatus::kStepLimit:
      return v1::ROW_STATUS_STEP_LIMIT;
    case RowStatus::kStepUnderflow:
      return v1::ROW_STATUS_STEP_UNDERFLOW;
    case RowStatus::kNonFinite:
      return v1::ROW_STATUS_NON_FINITE;
  }
  return v1::ROW_STATUS_UNSPECIFIED;
}

// Sets the lists that SolveInfo and SampleChunk both have.
template <class Message>
void FiguresToWire(const SolveInfo& info, Message* message) {
  message->mutable_nfe()->Assign(info.nfe.begin(), info.nfe.end());
  message->mutable_correction_evaluations()->Assign(info.correction_evaluations.begin(),
                                                    info.correction_evaluations.end());
  message->mutable_macs()->Assign(info.macs.begin(), info.macs.end());
  message->clear_row_status();
  for (const RowStatus status : info.row_status) message->add_row_status(RowStatusToWire(status));
  message->mutable_error_bound()->Assign(info.error_bound.begin(), info.error_bound.end());
  message->mutable_log_density_error()->Assign(info.log_density_error.begin(),
                                               info.log_density_error.end());
  message->clear_plan_rows();
  for (const PlanRows& one : info.plan_rows) {
    v1::PlanRows* rows = message->add_plan_rows();
    rows->set_plan(one.plan);
    rows->set_rows(one.rows);
    rows->set_rows_ended(one.rows_ended);
  }
}

void ToWire(const CorrectionState& state, v1::CorrectionInfo* info) {
  info->set_method(PrintMethod(state.method));
  info->set_problem(state.problem);
  info->set_previous_generation(state.previous ? state.previous->number : 0);
  if (state.active == nullptr) return;
  const HypersolverSpec& spec = state.active->correction->spec();
  info->set_generation(state.active->number);
  info->set_direction(std::string(DirectionName(spec.direction)));
  if (!spec.learned()) {
    for (const double eps : spec.eps) info->add_eps_range(eps);
  }
  for (const int steps : spec.steps) info->add_steps(steps);
  info->set_macs(state.active->correction->macs());
  for (const auto& [key, value] : spec.provenance) (*info->mutable_provenance())[key] = value;
}

void AddPlans(const Calibration& calibration, v1::GetModelReply* reply) {
  for (const PlanCalibration& plan : calibration.plans) {
    v1::PlanInfo* info = reply->add_plans();
    info->set_plan(PrintPlan(plan.plan));
    info->set_error_mean(plan.error_mean);
    info->set_error_p99(plan.error_p99);
    info->set_error_max(plan.error_max);
    if (plan.log_density_error) info->set_log_density_error(*plan.log_density_error);
    info->set_agreement(plan.agreement);
    info->set_nfe(plan.nfe);
    info->set_correction_evaluations(plan.correction_evaluations);
    info->set_macs(plan.macs);
    info->set_seconds_per_row(plan.seconds_per_row);
    info->set_wins(plan.wins);
    info->set_heavy_tail(plan.heavy_tail);
    if (plan.bound) info->set_bound_factor(plan.bound->factor);
    for (const BatchTime& time : plan.times) {
      v1::PlanInfo::Time* one = info->add_times();
      one->set_rows(time.rows);
      one->set_seconds(time.seconds);
    }
  }
}

absl::StatusOr<ConditionKnots> KnotsFromWire(const v1::ConditionKnots& wire) {
  ConditionKnots knots{.depths = {wire.depths().begin(), wire.depths().end()}};
  if (wire.interpolation().empty()) return knots;
  const auto known = std::ranges::find(kInterpolations, wire.interpolation());
  if (known == kInterpolations.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "condition_knots.interpolation: '", absl::CHexEscape(wire.interpolation().substr(0, 40)),
        "' is none of ", absl::StrJoin(kInterpolations, ", ", [](std::string* out, auto name) {
          absl::StrAppend(out, Absl(name));
        })));
  }
  knots.interpolation = static_cast<Interpolation>(known - kInterpolations.begin());
  return knots;
}

}  // namespace

absl::StatusOr<Plan> PlanFromWire(const v1::Plan& wire) {
  if (wire.choice_case() != v1::Plan::kText) {
    absl::StatusOr<Plan> plan = StructuredPlan(wire);
    if (plan.ok()) return plan;
    return Annotate(plan.status(), "plan");
  }
  if (wire.tier() == v1::TIER_UNSPECIFIED) return ParsePlan(wire.text());  // names the plan itself
  return absl::InvalidArgumentError(
      absl::StrCat("plan: tier stands beside text '", wire.text(),
                   "', which spells its own; write it there, as in 'euler:4/double'"));
}

AskTerms TermsFromWire(const v1::SolveOptions& options) {
  AskTerms terms{.model = options.model(),
                 .plan = PlanFromWire(options.plan()),
                 .max_steps = options.max_steps(),
                 .generation = options.generation(),
                 .request_id = options.request_id(),
                 .max_reply_bytes = options.max_reply_bytes(),
                 .reply_dtype = ReplyDtypeFromWire(options.reply_dtype()),
                 .want_error_bound = options.want_error_bound(),
                 .probes = options.probes(),
                 .probe_seed = options.probe_seed()};
  if (options.has_condition()) terms.condition = RowsFromWire(options.condition());
  if (options.has_condition_knots()) terms.knots = KnotsFromWire(options.condition_knots());
  if (options.has_guidance()) terms.guidance = RowsFromWire(options.guidance());
  return terms;
}

AskedRows RowsFromWire(const v1::Tensor& wire) {
  if (wire.dtype() == v1::DTYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError("dtype is not specified");
  }
  const std::optional<Dtype> dtype = DtypeFromWire(wire.dtype());
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: ", static_cast<int>(wire.dtype()), " is unknown"));
  }
  const std::span<const char> bytes = wire.data();
  return TensorView{.dtype = *dtype,
                    .shape = {wire.shape().begin(), wire.shape().end()},
                    .bytes = std::as_bytes(bytes)};
}

void ToWire(const HostTensor& tensor, v1::Tensor* wire) {
  wire->set_dtype(DtypeToWire(tensor.dtype));
  wire->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  wire->set_data(tensor.bytes.data(), tensor.bytes.size());
}

void ToWire(const SolveInfo& info, v1::SolveInfo* wire) {
  wire->set_request_id(info.request_id);
  wire->set_model(info.model);
  wire->set_plan(info.plan);
  wire->set_tier(std::string(TierName(info.tier)));
  wire->set_generation(info.generation);
  wire->set_base_digest(info.base_digest);
  FiguresToWire(info, wire);
  wire->set_queue_seconds(info.queue_seconds);
  wire->set_solve_seconds(info.solve_seconds);
  wire->set_engine(info.engine);
  wire->set_engine_reason(info.engine_reason);
  if (info.calibrated_error) wire->set_calibrated_error(*info.calibrated_error);
  wire->set_plan_reason(info.plan_reason);
  wire->set_probes(static_cast<int32_t>(info.probes));
  wire->set_device(info.device);
  wire->set_bucket(info.bucket);
}

void ToWire(const SampleAnswer& answer, uint64_t first_row, v1::SampleChunk* chunk) {
  chunk->set_first_row(first_row);
  chunk->set_rows(answer.samples.shape.front());
  chunk->set_generation(answer.info.generation);
  FiguresToWire(answer.info, chunk);
  ToWire(answer.samples, chunk->mutable_samples());
  if (!answer.log_density.bytes.empty()) {
    ToWire(answer.log_density, chunk->mutable_log_density());
  }
}

void ToWire(const ServedModel& served, v1::ModelSummary* summary) {
  const ModelSpec& spec = served.model->spec();
  summary->set_name(served.name);
  summary->set_kind(std::string(ModelKindName(spec.kind)));
  summary->set_base_digest(served.model->base_digest());
  summary->mutable_input_shape()->Assign(spec.input.shape.begin(), spec.input.shape.end());
  summary->mutable_condition_shape()->Assign(spec.condition.begin(), spec.condition.end());
  summary->mutable_no_condition()->Assign(spec.no_condition.begin(), spec.no_condition.end());
  summary->set_default_plan(PrintPlan(DefaultPlanOf(served.calibration)));
  summary->set_default_plan_problem(DefaultOf(served).reason);
  summary->set_brings_code(spec.field_package.has_value());
  summary->set_problem(served.problem);
  for (const CorrectionState& state : served.corrections) {
    ToWire(state, summary->add_corrections());
  }
}

void ToWire(const ServedModel& served, v1::GetModelReply* reply) {
  const Model& model = *served.model;
  ToWire(served, reply->mutable_model());
  reply->set_spec_json(served.spec_json);
  AddPlans(served.calibration, reply);
  for (const CorrectionState& state : served.corrections) {
    if (state.active != nullptr) AddPlans(state.active->calibration, reply);
  }
  for (const std::string& label : model.spec().labels) reply->add_labels(label);
  reply->mutable_state_shape()->Assign(model.state_shape().begin(), model.state_shape().end());
  const std::vector<double>& save_at = model.spec().save_at;
  reply->mutable_save_at()->Assign(save_at.begin(), save_at.end());
  reply->set_field_macs(model.field_macs());
  reply->set_stem_macs(model.stem_macs());
  reply->set_head_macs(model.head_macs());
  reply->set_calibration_device(served.calibration.device);
}

void ToWire(const ServerFacts& facts, double uptime_seconds, v1::GetServerInfoReply* reply) {
  reply->set_version(facts.version);
  reply->set_commit(facts.commit);
  reply->set_uptime_seconds(uptime_seconds);
  for (const ServerFacts::Device& device : facts.devices) {
    v1::DeviceInfo* info = reply->add_devices();
    info->set_name(device.name);
    info->set_description(device.description);
    info->set_memory_bytes(device.memory_bytes);
  }
  for (const std::string& engine : facts.engines) reply->add_engines(engine);
  for (const ServerFacts::LimitLine& line : facts.limits) {
    v1::Limit* limit = reply->add_limits();
    limit->set_name(line.name);
    limit->set_value(line.value);
    limit->set_unit(line.unit);
    limit->set_reason(line.reason);
  }
}

}  // namespace hyperserve
