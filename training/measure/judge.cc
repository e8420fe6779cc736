#include "training/measure/judge.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/plan_error.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/dataset.h"
#include "training/data/density.h"
#include "training/data/image_files.h"
#include "training/measure/measure.h"
#include "training/measure/rank_test.h"
#include "training/measure/two_samples.h"

namespace hyperserve {
namespace {

constexpr int64_t kTestRows = 5000;      // of each set
constexpr int kPermutations = 199;       // p is a multiple of 1 / 200
constexpr int64_t kEntropyRows = 20000;  // the entropy is right to about .015
constexpr int64_t kRankedRows = 2000, kDraws = 99, kBins = 20;

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

// [rows, numbers of a row and of its condition].
at::Tensor Joined(const HostTensor& rows, const HostTensor& condition) {
  const at::Tensor points = TensorFromView(rows.view());
  if (condition.shape.empty()) return points;
  return at::cat({points, TensorFromView(condition.view())}, 1);
}

// Each row `times` times, one after the other.
HostTensor Repeated(const HostTensor& rows, int64_t times) {
  std::vector<int64_t> places(rows.shape[0] * times);
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) / times;
  return RowsAt(rows.view(), places);
}

absl::StatusOr<SolveInputs> HeldOut(const Recipe& recipe, const ModelSpec& spec,
                                    Direction direction, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const InputSource source, InputSource::Make(recipe, spec, direction, ""));
  return source.HeldOut(rows);
}

// Of each number of the points among kDraws samples for each of them.
std::vector<RankTest> Ranks(const HostTensor& points, const HostTensor& samples) {
  const at::Tensor values = TensorFromView(points.view()).unsqueeze(1);
  const at::Tensor drawn = TensorFromView(samples.view()).view({kRankedRows, kDraws, -1});
  const at::Tensor below = drawn.lt(values).sum(1);
  std::vector<RankTest> tests;
  for (int64_t i = 0; i < below.size(1); ++i) {
    const at::Tensor ranks = below.select(1, i).contiguous();
    const std::span<const int64_t> all(ranks.const_data_ptr<int64_t>(), kRankedRows);
    tests.push_back(TestRanks(all, kDraws, kBins));
  }
  return tests;
}

// How far the held-out rows of a regressor or a trajectory end from their answers.
absl::StatusOr<std::string> DistanceFromAnswers(const Recipe& recipe, DeviceRuntime& runtime,
                                                const std::shared_ptr<const Model>& model,
                                                const std::string& data_folder) {
  HS_ASSIGN_OR_RETURN(Solve solve, ReferenceSolve(recipe, model, Direction::kForward));
  solve.want_outputs = HasOutputs(model->spec().kind);
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model->spec(), Direction::kForward, data_folder));
  HS_ASSIGN_OR_RETURN(const SolveInputs rows, source.HeldOut(recipe.calibrate().rows()));
  if (rows.answer.shape.empty()) {
    return absl::InvalidArgumentError(
        "the data has no answers to compare with: data.pairs or data.signal wanted");
  }
  HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(runtime, solve, rows));
  const HostTensor& found = solve.want_outputs ? solution.outputs : solution.saved;
  const at::Tensor wrong =
      TensorFromView(found.view()).to(at::kDouble) - TensorFromView(rows.answer.view());
  return absl::StrFormat(
      "root mean square distance from the answers %.4g under %s, %.1f "
      "evaluations a row (%d held-out rows)",
      std::sqrt(wrong.square().mean().item<double>()), PrintPlan(solve.plan), solution.nfe,
      rows.count());
}

}  // namespace

absl::StatusOr<std::string> Quality(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model,
                                    const std::string& data_folder) {
  const ModelSpec& spec = model->spec();
  const bool flow = spec.kind == ModelKind::kFlow;
  if (!flow && spec.kind != ModelKind::kClassifier) {
    return DistanceFromAnswers(recipe, runtime, model, data_folder);
  }
  HS_ASSIGN_OR_RETURN(
      const Solve solve,
      ReferenceSolve(recipe, model, flow ? Direction::kDataToNoise : Direction::kForward));
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, spec, solve.direction, data_folder));
  LabelledImages test;
  if (!flow) {
    HS_ASSIGN_OR_RETURN(
        test, LoadLabelled(recipe, spec.input, model->outputs(), ImagePart::kTest, data_folder));
  }
  const int64_t count = flow ? recipe.calibrate().rows() : test.rows();
  HS_ASSIGN_OR_RETURN(const SolveInputs rows, source.HeldOut(count));
  HS_ASSIGN_OR_RETURN(const Solution solution, RunSolve(runtime, solve, rows));
  const std::string solved = absl::StrFormat(
      "under %s, %.1f evaluations a row (%d %s)", PrintPlan(solve.plan), solution.nfe, count,
      recipe.data().has_idx() ? "test images, all" : "held-out rows");
  if (flow) {
    return absl::StrFormat("mean log-density %.4f %s", MeanOf(solution.log_density.as<double>()),
                           solved);
  }
  return absl::StrFormat("accuracy %.4f %s", ShareOfEqual(LabelsOf(solution.outputs), test.labels),
                         solved);
}

absl::StatusOr<std::vector<RankTest>> RankSamples(const Recipe& recipe, DeviceRuntime& runtime,
                                                  const Solve& solve) {
  const ModelSpec& spec = solve.model->spec();
  HS_ASSIGN_OR_RETURN(const SolveInputs points,
                      HeldOut(recipe, spec, Direction::kDataToNoise, kRankedRows));
  HS_ASSIGN_OR_RETURN(SolveInputs noise,
                      HeldOut(recipe, spec, Direction::kNoiseToData, kRankedRows * kDraws));
  noise.condition = Repeated(points.condition, kDraws);
  HS_ASSIGN_OR_RETURN(const Solution samples, RunSolve(runtime, solve, noise));
  return Ranks(points.rows, samples.state);
}

absl::StatusOr<Judgement> JudgeFlow(const Recipe& recipe, DeviceRuntime& runtime,
                                    const std::shared_ptr<const Model>& model) {
  const auto solved = [&](Direction direction,
                          const SolveInputs& rows) -> absl::StatusOr<Solution> {
    HS_ASSIGN_OR_RETURN(const Solve solve, ReferenceSolve(recipe, model, direction));
    return RunSolve(runtime, solve, rows);
  };
  const ModelSpec& spec = model->spec();
  const bool conditional = !spec.condition.empty();
  HS_ASSIGN_OR_RETURN(const SolveInputs noise,
                      HeldOut(recipe, spec, Direction::kNoiseToData, kTestRows));
  HS_ASSIGN_OR_RETURN(const Solution samples, solved(Direction::kNoiseToData, noise));
  HS_ASSIGN_OR_RETURN(const SolveInputs points,
                      HeldOut(recipe, spec, Direction::kDataToNoise, kEntropyRows));
  HS_ASSIGN_OR_RETURN(const Solution back,
                      solved(Direction::kDataToNoise, RowsOf(points, 0, kTestRows)));
  Judgement judgement{.rows = kTestRows, .nll = -MeanOf(back.log_density.as<double>())};
  const at::Tensor all = Joined(points.rows, points.condition);
  // The first points have the conditions of the samples: the others are independent of them.
  const at::Tensor against = all.narrow(0, conditional ? kTestRows : 0, kTestRows);
  const EnergyTest test = TestEnergy(Joined(samples.state, noise.condition), against, kPermutations,
                                     static_cast<uint64_t>(recipe.seed()));
  judgement.distance = test.distance;
  judgement.p = test.p;
  if (!conditional) {
    judgement.entropy = EntropyByNeighbours(all);
    return judgement;
  }
  HS_ASSIGN_OR_RETURN(const Solve solve, ReferenceSolve(recipe, model, Direction::kNoiseToData));
  HS_ASSIGN_OR_RETURN(judgement.ranks, RankSamples(recipe, runtime, solve));
  return judgement;
}

std::string JudgementText(const Judgement& judgement) {
  std::string text = absl::StrFormat(
      "%d samples against as many points of the density: energy distance %.2e, p %.3f\n"
      "negative log-likelihood %.3f nats",
      judgement.rows, judgement.distance, judgement.p, judgement.nll);
  if (judgement.ranks.empty()) {
    return absl::StrCat(text,
                        absl::StrFormat("; the density's own entropy %.3f", judgement.entropy));
  }
  for (size_t i = 0; i < judgement.ranks.size(); ++i) {
    const RankTest& test = judgement.ranks[i];
    absl::StrAppendFormat(
        &text,
        "\nranks of number %d among %d samples of its condition, %d points: %s; uniform: p %.3f",
        i + 1, kDraws, kRankedRows, absl::StrJoin(test.counts, " "), test.p);
  }
  return text;
}

}  // namespace hyperserve
