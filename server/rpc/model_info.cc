#include "server/rpc/model_info.h"

#include <string>

#include "core/model/repository/calibration.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

void FillCorrection(const CorrectionState& state, v1::CorrectionInfo* info) {
  info->set_method(PrintMethod(state.method));
  info->set_problem(state.problem);
  info->set_previous_generation(state.previous ? state.previous->number : 0);
  if (state.active == nullptr) return;
  const HypersolverSpec& spec = state.active->correction->spec();
  info->set_generation(state.active->number);
  info->set_direction(std::string(DirectionName(spec.direction)));
  for (const double eps : spec.eps) info->add_eps_range(eps);
  for (const int steps : spec.steps) info->add_steps(steps);
  info->set_macs(state.active->correction->macs());
  for (const auto& [key, value] : spec.provenance) (*info->mutable_provenance())[key] = value;
}

void FillPlans(const Calibration& calibration, v1::GetModelReply* reply) {
  for (const PlanCalibration& plan : calibration.plans) {
    v1::PlanInfo* info = reply->add_plans();
    info->set_plan(PrintPlan(plan.plan));
    info->set_error_mean(plan.error_mean);
    info->set_error_max(plan.error_max);
    info->set_agreement(plan.agreement);
    info->set_nfe(plan.nfe);
    info->set_correction_evaluations(plan.correction_evaluations);
    info->set_macs(plan.macs);
    info->set_seconds_per_row(plan.seconds_per_row);
    info->set_wins(plan.wins);
  }
}

}  // namespace

void FillSummary(const ServedModel& served, v1::ModelSummary* summary) {
  const ModelSpec& spec = served.model->spec();
  summary->set_name(served.name);
  summary->set_kind(std::string(ModelKindName(spec.kind)));
  summary->set_base_digest(served.model->base_digest());
  summary->mutable_input_shape()->Assign(spec.input.shape.begin(), spec.input.shape.end());
  summary->set_default_plan(PrintPlan(DefaultPlanOf(served.calibration)));
  summary->set_problem(served.problem);
  for (const CorrectionState& state : served.corrections) {
    FillCorrection(state, summary->add_corrections());
  }
}

void FillModel(const ServedModel& served, v1::GetModelReply* reply) {
  const Model& model = *served.model;
  FillSummary(served, reply->mutable_model());
  reply->set_spec_json(served.spec_json);
  FillPlans(served.calibration, reply);
  for (const CorrectionState& state : served.corrections) {
    if (state.active != nullptr) FillPlans(state.active->calibration, reply);
  }
  for (const std::string& label : model.spec().labels) reply->add_labels(label);
  reply->mutable_state_shape()->Assign(model.state_shape().begin(), model.state_shape().end());
  reply->set_field_macs(model.field_macs());
  reply->set_stem_macs(model.stem_macs());
  reply->set_head_macs(model.head_macs());
  reply->set_calibration_device(served.calibration.device);
}

void FillServerInfo(const ServerFacts& facts, double uptime_seconds,
                    v1::GetServerInfoReply* reply) {
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
