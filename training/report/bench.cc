#include "training/report/bench.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "programs/stop.h"
#include "training/measure/calibrate.h"

namespace hyperserve {

absl::StatusOr<std::vector<Served>> ServedGenerations(const std::string& model_folder,
                                                      const Model& model) {
  std::vector<Served> all;
  for (const MethodChoice& method : ListHypersolverMethods(model_folder)) {
    const std::string folder = HypersolverFolder(model_folder, method);
    HS_ASSIGN_OR_RETURN(std::optional<int64_t> number, ReadActive(folder));
    const std::vector<int64_t> there = ListGenerations(folder);
    if (!number.has_value() && !there.empty()) number = there.back();
    if (!number.has_value()) continue;
    Served one{.label = absl::StrCat(PrintMethod(method), "/", *number),
               .folder = absl::StrCat(folder, "/", *number),
               .correction = nullptr};
    auto correction = Hypersolver::Load(one.folder, model);
    if (!correction.ok()) {
      absl::FPrintF(stderr, "%s is left out: %s\n", one.folder, correction.status().message());
      continue;
    }
    one.correction = *std::move(correction);
    all.push_back(std::move(one));
  }
  return all;
}

absl::StatusOr<Solution> Bench::Run(const Plan& plan,
                                    const std::shared_ptr<const Hypersolver>& correction) const {
  if (StopRequested()) return Stopped();
  Solve one = solve;
  one.plan = plan;
  one.correction = correction;
  return RunSolve(runtime, one, rows);
}

absl::StatusOr<Bench> MakeBench(const Recipe& recipe, DeviceRuntime& runtime,
                                const std::shared_ptr<const Model>& model,
                                const std::string& data_folder) {
  const Direction direction = ServedDirection(model->spec());
  HS_ASSIGN_OR_RETURN(const Plan asked, ParsePlan(recipe.calibrate().reference()));
  const Plan reference = ReferenceOf(*model, asked);
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model->spec(), direction, data_folder));
  HS_ASSIGN_OR_RETURN(SolveInputs rows, source.HeldOut(recipe.calibrate().rows()));
  Bench bench{.runtime = runtime,
              .solve = {.model = model,
                        .correction = nullptr,
                        .plan = reference,
                        .direction = direction,
                        .batch = recipe.calibrate().batch()},
              .rows = std::move(rows)};
  HS_ASSIGN_OR_RETURN(bench.reference, bench.Run(reference, nullptr));
  return bench;
}

Samples SamplesOf(const std::string& plan, const Solution& solution) {
  const std::vector<double> states = AsDoubles(solution.state.view());
  Samples samples{.plan = plan, .points = {}};
  for (size_t i = 0; i + 1 < states.size(); i += 2) {
    samples.points.push_back({.x = states[i], .y = states[i + 1]});
  }
  return samples;
}

}  // namespace hyperserve
