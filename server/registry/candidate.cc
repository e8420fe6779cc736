#include "server/registry/candidate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/model/spec/spec_limits.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using spec_limits::kGateClaims, spec_limits::kProbeRowsMax, spec_limits::kProbeRowsMin;

constexpr int kClaimedStepsMax = 1000;  // bounds the time that the gate takes

absl::StatusOr<Calibration> ParseCalibrationOf(const Model& model, std::string_view json) {
  HS_ASSIGN_OR_RETURN(Calibration calibration, ParseCalibration(json));
  if (calibration.base_digest != model.base_digest()) {
    return absl::FailedPreconditionError(absl::StrCat("measured on base ", calibration.base_digest,
                                                      ", this is ", model.base_digest()));
  }
  return calibration;
}

absl::Status CheckProbeValues(const char* name, const HostTensor& values, bool unit_range) {
  if (values.dtype == Dtype::kU8) return absl::OkStatus();
  for (const float value : values.as<float>()) {
    if (!std::isfinite(value) || (unit_range && (value < 0.0f || value > 1.0f))) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " holds ", value, unit_range ? ", outside [0, 1]" : ", which is not finite"));
    }
  }
  return absl::OkStatus();
}

// One condition for each of the probe's rows.
absl::StatusOr<HostTensor> ParseConditions(const SafetensorsFile& file, const Model& model,
                                           int64_t rows) {
  if (model.spec().condition.empty()) return HostTensor();
  HS_ASSIGN_OR_RETURN(const TensorView found, file.Find("condition"));
  const Shape wanted = {rows, model.spec().condition[0]};
  if (found.dtype != Dtype::kF32 || found.shape != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("condition is ", Absl(DtypeName(found.dtype)),
                                                   " ", ShapeText(found.shape), ", wanted F32 ",
                                                   ShapeText(wanted)));
  }
  HostTensor condition = HostTensor::CopyOf(found);
  HS_RETURN_IF_ERROR(CheckProbeValues("condition", condition, /*unit_range=*/false));
  return condition;
}

absl::StatusOr<Probe> ParseProbe(const std::string& bytes, const Model& model) {
  const bool flow = model.spec().kind == ModelKind::kFlow;
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(bytes));
  HS_ASSIGN_OR_RETURN(const TensorView x, file.Find("x"));
  if (x.dtype != Dtype::kF32 && (flow || x.dtype != Dtype::kU8)) {
    return absl::InvalidArgumentError(absl::StrCat("x is ", std::string(DtypeName(x.dtype)),
                                                   flow ? ", wanted F32" : ", wanted U8 or F32"));
  }
  const Shape& row = flow ? model.state_shape() : model.spec().input.shape;
  const bool fits = x.shape.size() == row.size() + 1 && x.shape[0] >= kProbeRowsMin &&
                    x.shape[0] <= kProbeRowsMax &&
                    std::equal(row.begin(), row.end(), x.shape.begin() + 1);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("x has shape ", ShapeText(x.shape), ", wanted ",
                                                   kProbeRowsMin, " to ", kProbeRowsMax,
                                                   " rows of ", ShapeText(row)));
  }
  Probe probe{.x = HostTensor::CopyOf(x), .condition = {}};
  HS_RETURN_IF_ERROR(CheckProbeValues("x", probe.x, !flow && model.spec().input.unit_range));
  HS_ASSIGN_OR_RETURN(probe.condition, ParseConditions(file, model, x.shape[0]));
  return probe;
}

absl::Status CheckClaims(const HypersolverSpec& spec, const MethodChoice& method,
                         const Hypersolver& correction, const Model& model) {
  const bool flow = model.spec().kind == ModelKind::kFlow;
  if (flow == (spec.direction == Direction::kForward)) {
    return absl::FailedPreconditionError(
        absl::StrCat("direction '", std::string(DirectionName(spec.direction)),
                     "' is not one of a ", std::string(ModelKindName(model.spec().kind))));
  }
  HS_RETURN_IF_ERROR(CheckMethod(spec, method));
  if (spec.steps.empty() || spec.steps.size() > kGateClaims) {
    return absl::FailedPreconditionError(
        absl::StrCat("steps lists ", spec.steps.size(), " numbers, wanted 1 to ", kGateClaims));
  }
  for (const int steps : spec.steps) {
    if (!spec.learned() && (steps < 1 || steps > kClaimedStepsMax)) {
      return absl::FailedPreconditionError(
          absl::StrCat("steps lists ", steps, ", wanted 1 to ", kClaimedStepsMax));
    }
    const FixedPlan plan = {.method = method, .steps = steps, .hypersolved = true};
    HS_RETURN_IF_ERROR(Annotate(CheckApplies(correction, plan, spec.direction, model.spec().span),
                                absl::StrCat("steps lists ", steps)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMethod(const HypersolverSpec& spec, const MethodChoice& method) {
  if (spec.method == method) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("method is ", PrintMethod(spec.method), ", published as ", PrintMethod(method)));
}

absl::StatusOr<Calibration> LoadCalibration(const std::string& path, const Model& model) {
  HS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kCalibrationBytesMax));
  return ParseCalibrationOf(model, json);
}

absl::StatusOr<Candidate> LoadCandidate(const std::string& generation_folder, int64_t number,
                                        const MethodChoice& method, const Model& model) {
  HS_ASSIGN_OR_RETURN(const GenerationFiles files, ReadGeneration(generation_folder));
  return CandidateOf(files, number, method, model);
}

absl::StatusOr<Candidate> CandidateOf(const GenerationFiles& files, int64_t number,
                                      const MethodChoice& method, const Model& model) {
  auto generation = std::make_shared<Generation>();
  generation->number = number;
  HS_ASSIGN_OR_RETURN(
      generation->correction,
      Hypersolver::FromBytes(files.at("hypersolver.json"), files.at("weights.safetensors"), model));
  HS_RETURN_IF_ERROR(
      Annotate(CheckClaims(generation->correction->spec(), method, *generation->correction, model),
               "hypersolver.json"));
  if (const auto json = files.find("calibration.json"); json != files.end()) {
    absl::StatusOr<Calibration> calibration = ParseCalibrationOf(model, json->second);
    HS_RETURN_IF_ERROR(Annotate(calibration.status(), "calibration.json"));
    generation->calibration = *std::move(calibration);
  }
  absl::StatusOr<Probe> probe = ParseProbe(files.at("probe.safetensors"), model);
  HS_RETURN_IF_ERROR(Annotate(probe.status(), "probe.safetensors"));
  return Candidate{.generation = std::move(generation), .probe = *std::move(probe)};
}

}  // namespace hyperserve
