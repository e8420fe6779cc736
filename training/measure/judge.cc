#include "training/measure/judge.h"

#include <ATen/ATen.h>

#include <numeric>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/plan_error.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/density.h"
#include "training/measure/measure.h"
#include "training/measure/two_samples.h"

namespace hyperserve {
namespace {

constexpr int64_t kTestRows = 5000;      // of each set
constexpr int kPermutations = 199;       // p is a multiple of 1 / 200
constexpr int64_t kEntropyRows = 20000;  // the entropy is right to about .015

absl::StatusOr<Solve> ReferenceSolve(const Recipe& recipe,
                                     const std::shared_ptr<const Model>& model,
                                     Direction direction) {
  HS_ASSIGN_OR_RETURN(const Plan reference, ParsePlan(recipe.calibrate().reference()));
  const bool likelihood = direction == Direction::kDataToNoise;
  return Solve{.model = model,
               .correction = nullptr,
               .plan = reference,
               .direction = direction,
               .log_density = likelihood ? LogDensity::kDivergence : LogDensity::kNone,
               .batch = recipe.calibrate().batch()};
}

double MeanOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Does not own the numbers.
at::Tensor Points(std::span<float> values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size()) / 2, 2}, at::kFloat);
}

}  // namespace

absl::StatusOr<std::string> Quality(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model,
                                    const std::string& data_folder) {
  const ModelSpec& spec = model->spec();
  const bool flow = spec.kind == ModelKind::kFlow;
  HS_ASSIGN_OR_RETURN(
      const Solve solve,
      ReferenceSolve(recipe, model, flow ? Direction::kDataToNoise : Direction::kForward));
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, spec, solve.direction, data_folder));
  LabelledImages test;
  if (!flow) {
    HS_ASSIGN_OR_RETURN(test,
                        LoadImages(data_folder, ImagePart::kTest, spec.input, model->outputs()));
  }
  const int64_t count = flow ? recipe.calibrate().rows() : test.rows();
  HS_ASSIGN_OR_RETURN(const SolveInputs rows, source.HeldOut(count));
  HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(runtime, solve, rows));
  const std::string solved =
      absl::StrFormat("under %s, %.1f evaluations a row (%d %s)", PrintPlan(solve.plan),
                      solution.nfe, count, flow ? "held-out rows" : "test images, all");
  if (flow) {
    return absl::StrFormat("mean log-density %.4f %s", MeanOf(solution.log_density.as<double>()),
                           solved);
  }
  return absl::StrFormat("accuracy %.4f %s", ShareOfEqual(LabelsOf(solution.outputs), test.labels),
                         solved);
}

absl::StatusOr<Judgement> JudgeFlow(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model) {
  const auto solved = [&](Direction direction) -> absl::StatusOr<Solution> {
    HS_ASSIGN_OR_RETURN(const Solve solve, ReferenceSolve(recipe, model, direction));
    HS_ASSIGN_OR_RETURN(const InputSource source,
                        InputSource::Make(recipe, model->spec(), direction, ""));
    HS_ASSIGN_OR_RETURN(const SolveInputs rows, source.HeldOut(kTestRows));
    return RunSolve(runtime, solve, rows);
  };
  HS_ASSIGN_OR_RETURN(Solution samples, solved(Direction::kNoiseToData));
  HS_ASSIGN_OR_RETURN(const Solution noise, solved(Direction::kDataToNoise));
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model->spec(), Direction::kDataToNoise, ""));
  HS_ASSIGN_OR_RETURN(SolveInputs points, source.HeldOut(kEntropyRows));
  const at::Tensor all = Points(points.rows.as<float>());
  const EnergyTest test = TestEnergy(Points(samples.state.as<float>()), all.narrow(0, 0, kTestRows),
                                     kPermutations, static_cast<uint64_t>(recipe.seed()));
  return Judgement{.rows = kTestRows,
                   .distance = test.distance,
                   .p = test.p,
                   .nll = -MeanOf(noise.log_density.as<double>()),
                   .entropy = EntropyByNeighbours(all)};
}

std::string JudgementText(const Judgement& judgement) {
  return absl::StrFormat(
      "%d samples against as many points of the density: energy distance %.2e, p %.3f\n"
      "negative log-likelihood %.3f nats; the density's own entropy %.3f",
      judgement.rows, judgement.distance, judgement.p, judgement.nll, judgement.entropy);
}

}  // namespace hyperserve
