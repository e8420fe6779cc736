#include "tests/server/calls/served_fixture.h"

#include "absl/strings/str_replace.h"
#include "core/model/net/model.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/registry/served_model.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

std::shared_ptr<ServedModel> Serve(const fixture::LinearModel& tiny) {
  auto served = std::make_shared<ServedModel>();
  served->name = tiny.name;
  served->model = *Model::FromBytes(tiny.model_json, tiny.weights);
  served->spec_json = tiny.model_json;
  served->calibration.plans = {{.plan = *ParsePlan("euler:4"), .error_mean = 0.1, .wins = true}};
  const fixture::CorrectionOptions options = fixture::DefaultCorrection(tiny);
  const GenerationFiles files = fixture::TinyCorrection(tiny, options);
  const auto make = [&](int64_t number) {
    auto generation = std::make_shared<Generation>();
    generation->number = number;
    generation->correction = *Hypersolver::FromBytes(
        files.at("hypersolver.json"), files.at("weights.safetensors"), *served->model);
    return generation;
  };
  served->corrections = {{.method = options.method, .active = make(7), .previous = make(5)}};
  return served;
}

}  // namespace

std::shared_ptr<ServedModel> ServedTinyClassifier() { return Serve(fixture::TinyClassifier()); }
std::shared_ptr<ServedModel> ServedTinyFlow() { return Serve(fixture::TinyFlow()); }

std::shared_ptr<ServedModel> ServedTinyRegressor() {
  const fixture::LinearModel tiny = fixture::TinyClassifier();
  auto served = std::make_shared<ServedModel>();
  served->name = "tiny_regressor";
  served->spec_json = absl::StrReplaceAll(tiny.model_json, {{"classifier", "regressor"}});
  served->model = *Model::FromBytes(served->spec_json, tiny.weights);
  return served;
}

std::shared_ptr<ServedModel> ServedTinyTrajectory() {
  ModelSpec spec = ParseModelSpec(fixture::TinyClassifier().model_json).value();
  spec.kind = ModelKind::kTrajectory;
  spec.head.clear();
  spec.labels.clear();
  spec.stem.clear();
  spec.input = {.shape = {4}};
  spec.save_at = {0.25, 1};
  auto served = std::make_shared<ServedModel>();
  served->name = "tiny_trajectory";
  served->spec_json = PrintModelSpec(spec);
  const std::vector<double> a = fixture::TinyClassifier().a;
  served->model = *Model::FromBytes(
      served->spec_json,
      fixture::SafetensorsOf({{"field.0.weight", {4, 4}, a}, {"field.1.weight", {4, 4}, a}}));
  return served;
}

}  // namespace hyperserve
