#include "training/fit/fit_learned.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/engine/device_faults.h"
#include "core/engine/readable/tensor_space.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "programs/progress.h"
#include "programs/stop.h"
#include "programs/time_after.h"
#include "programs/time_left.h"
#include "training/data/dataset.h"
#include "training/data/random.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"
#include "training/fit/contest.h"
#include "training/fit/fit_table.h"
#include "training/fit/parameters.h"
#include "training/fit/table_start.h"
#include "training/fit/trajectory.h"
#include "training/fit/truth.h"
#include "training/measure/calibrate.h"
#include "training/measure/measure.h"
#include "training/measure/rivals.h"
#include "training/optimise/tensor_bytes.h"

namespace hyperserve {
namespace {

// True states at equal depths and on further grids, for every n and one set of rows.
struct Truths {
  std::array<double, 2> span;
  std::vector<NodeGrid> grids;  // beside equal depths
  std::vector<double> depths;
  std::vector<at::Tensor> states;  // one for each of depths
  at::Tensor condition = {};

  GridTruth Of(int evaluations, const NodeGrid& grid = kEqualNodes) const {
    GridTruth truth{
        .span = span, .grid = grid, .start = states.front(), .states = {}, .condition = condition};
    for (const double depth : Depths({std::max(evaluations, 1)}, span, grid.share)) {
      const auto place = std::lower_bound(depths.begin(), depths.end(), depth) - depths.begin();
      if (place > 0) truth.states.push_back(states[static_cast<size_t>(place)]);
    }
    return truth;
  }
};

absl::StatusOr<Truths> Solve(const TensorSpace& space, const Recipe& recipe,
                             const HypersolverFitOptions& options, const std::vector<int>& counts,
                             const SolveInputs& inputs, std::vector<NodeGrid> grids = {}) {
  HS_ASSIGN_OR_RETURN(const AdaptivePlan plan, ParseAdaptivePlan(recipe.hypersolver().truth()));
  HS_ASSIGN_OR_RETURN(const at::Tensor start, InitialState(options.model, inputs, options.device));
  Truths truths{.span = options.model->spec().span,
                .grids = std::move(grids),
                .depths = {},
                .states = {},
                .condition = ConditionOf(inputs, options.device)};
  std::vector<NodeGrid> all = truths.grids;
  all.push_back(kEqualNodes);
  std::set<double> depths;
  for (const NodeGrid& grid : all) {
    const std::vector<double> own = Depths(counts, truths.span, grid.share);
    depths.insert(own.begin(), own.end());
  }
  truths.depths = {depths.begin(), depths.end()};
  HS_ASSIGN_OR_RETURN(truths.states,
                      TrueStates(space, plan, truths.span, truths.depths, start, truths.condition));
  return truths;
}

// A table alone, as text. Equal texts mean equal meanings of the tensors. The distance readout is
// fitted afterwards, anew.
std::string TextOf(HypersolverSpec spec, TableSpec table) {
  table.distance.reset();
  spec.steps = {table.evaluations};
  spec.tables = {table};
  spec.provenance.clear();
  spec.base_digest.clear();
  return PrintHypersolverSpec(spec);
}

// Another generation; no tables where there is none.
struct Earlier {
  HypersolverSpec spec;
  TensorMap tensors;

  std::optional<TensorMap> Of(const HypersolverSpec& wanted, const TableSpec& table) const {
    const bool same = std::any_of(
        spec.tables.begin(), spec.tables.end(),
        [&](const TableSpec& own) { return TextOf(spec, own) == TextOf(wanted, table); });
    if (!same) return std::nullopt;
    TensorMap own;
    for (const auto& [name, tensor] : tensors) {
      const std::string prefix = TablePrefix(table.evaluations) + ".";
      if (name.starts_with(prefix) && !name.starts_with(prefix + "distance")) own[name] = tensor;
    }
    return own;
  }
};

absl::StatusOr<Earlier> ReadEarlier(const HypersolverSpec& spec, const Model& model,
                                    const GenerationFiles& files) {
  HS_ASSIGN_OR_RETURN(HypersolverSpec other,
                      ParseHypersolverSpec(files.at("hypersolver.json"), model.state_shape()));
  if (!other.learned() || other.direction != spec.direction || other.span != spec.span) {
    return absl::FailedPreconditionError(
        "the generation to start from, or to join, is no learned solver of the recipe's direction "
        "and the model's span");
  }
  HS_ASSIGN_OR_RETURN(const SafetensorsFile file,
                      SafetensorsFile::Parse(files.at("weights.safetensors")));
  return Earlier{.spec = std::move(other), .tensors = TensorsOf(file)};
}

std::vector<FixedPlan> StartsOf(const Model& model, int evaluations) {
  std::vector<FixedPlan> starts;
  for (const FixedPlan& plan : ClassicalRivals(model, evaluations * model.field_macs())) {
    if (PlanEvaluations(plan) == evaluations) starts.push_back(plan);
  }
  return starts;
}

// The space that tables are fitted in.
TensorSpace::Options FieldSpace(const HypersolverFitOptions& options, const HypersolverSpec& spec) {
  return SpaceOptions(options.model->spec(), spec.direction,
                      options.model->weights().Get("field", options.device, at::kFloat));
}

// One table's fit, from its start on.
struct TableWork {
  TableSolves solves;
  GridTruth truth;
  TableFit fit;
  FittedTable start;
};

// The starts of all tables. A step of each is timed, so that the first lines about the time that is
// left are right, although a step of a table may cost a hundred times that of another.
absl::StatusOr<std::vector<TableWork>> StartTables(const Recipe& recipe,
                                                   const HypersolverFitOptions& options,
                                                   const HypersolverSpec& spec,
                                                   const Truths& truths, const EndTruth& checks,
                                                   TimeLeft& time_left) {
  const training::HypersolverFit& fit = recipe.hypersolver();
  const int iterations = fit.optimiser().iterations(), batch = fit.optimiser().batch();
  Earlier earlier;
  if (options.start_from.has_value()) {
    HS_ASSIGN_OR_RETURN(earlier, ReadEarlier(spec, *options.model, *options.start_from));
  }
  const auto tables = static_cast<int64_t>(spec.tables.size());
  std::vector<TableWork> works;
  Progress progress(recipe.name() + " starts", tables, "tables");
  for (const TableSpec& table : spec.tables) {
    if (StopRequested()) return Stopped();
    TableWork work{.solves = {.space = FieldSpace(options, spec),
                              .table = table,
                              .state_shape = options.model->state_shape()},
                   .truth = truths.Of(table.evaluations),
                   .fit = {.name = absl::StrFormat("%s learned:%d, table %d of %d", recipe.name(),
                                                   table.evaluations, works.size() + 1, tables),
                           .optimiser = TableOptimiser(fit, static_cast<int>(works.size())),
                           .check_every = fit.check_every(),
                           .net_seed = recipe.seed(),
                           .starts = StartsOf(*options.model, table.evaluations),
                           .grids = {},
                           .from = earlier.Of(spec, table),
                           .time_left = &time_left,
                           .checkpoints = options.checkpoints},
                   .start = {}};
    for (const NodeGrid& grid : truths.grids) {
      if (table.evaluations > 1) work.fit.grids.push_back(truths.Of(table.evaluations, grid));
    }
    work.start = StartTable(work.solves, work.truth, checks, work.fit);
    const double step = StepSeconds(work.solves, work.start, work.truth, batch);
    work.fit.step_kind = time_left.Expect(iterations, step);
    const double most = fit.optimiser().seconds();
    if (most > 0) time_left.Limit(work.fit.step_kind, most);
    // It evaluates forth only, on rows of its own.
    work.fit.check_kind = time_left.Expect((iterations - 1) / fit.check_every() + 2,
                                           step * fit.check_rows() / batch / 3);
    works.push_back(std::move(work));
    progress.Advance(1);
  }
  return works;
}

absl::StatusOr<std::vector<FittedTable>> FitTables(const Recipe& recipe,
                                                   const HypersolverFitOptions& options,
                                                   const HypersolverSpec& spec,
                                                   const InputSource& source, Rivals& rivals) {
  TimeAfter after;
  const training::HypersolverFit& fit = recipe.hypersolver();
  const TensorSpace space(FieldSpace(options, spec));
  std::vector<int> counts = {1};
  for (const int evaluations : spec.steps) counts.push_back(std::max(evaluations, 1));
  HS_ASSIGN_OR_RETURN(const Truths truths,
                      Solve(space, recipe, options, counts, source.Training(0, fit.truth_rows()),
                            FurtherGrids(space.options().field, options.model->state_shape())));
  HS_ASSIGN_OR_RETURN(const SolveInputs check_rows, source.Validation(fit.check_rows()));
  HS_ASSIGN_OR_RETURN(const Truths check_truths, Solve(space, recipe, options, {1}, check_rows));
  const EndTruth checks{.start = check_truths.states.front(),
                        .end = check_truths.states.back(),
                        .condition = check_truths.condition};
  TimeLeft time_left;
  HS_ASSIGN_OR_RETURN(std::vector<TableWork> works,
                      StartTables(recipe, options, spec, truths, checks, time_left));
  RandomStream stream(recipe.seed(), RandomPurpose::kBatches);
  TensorMap starts;
  for (const TableWork& work : works) starts.merge(TensorMap(work.start.tensors));
  // Starts that no solver could have fail in the fit, with better words.
  after.Set(ContestSeconds(*options.model, spec, starts, rivals).value_or(kTimeUnknown));
  std::vector<FittedTable> tables;
  for (TableWork& work : works) {
    HS_ASSIGN_OR_RETURN(tables.emplace_back(), FitTable(work.solves, work.truth, checks, work.fit,
                                                        std::move(work.start), stream));
  }
  return tables;
}

// What a generation tells of one of its tables. Of one that was joined before, it is what was told
// then: the text of RemarkOf around that is left out.
std::string ToldOf(const HypersolverSpec& spec, const std::string& table) {
  constexpr std::string_view kJoined = "joined (";
  const auto told = [&spec](const std::string& key) {
    const auto entry = spec.provenance.find(key);
    return entry == spec.provenance.end() ? std::string("?") : entry->second;
  };
  const std::string text = told(table);
  const size_t end = text.rfind("), ");
  if (text.starts_with(kJoined) && end != std::string::npos) {
    return text.substr(kJoined.size(), end - kJoined.size());
  }
  return absl::StrCat(told("iterations"), " iterations, ", text);
}

// The tables of options.joined.
absl::StatusOr<std::vector<FittedTable>> JoinTables(const HypersolverFitOptions& options,
                                                    const HypersolverSpec& spec) {
  std::vector<Earlier> parts;
  for (const GenerationFiles& files : options.joined) {
    HS_ASSIGN_OR_RETURN(parts.emplace_back(), ReadEarlier(spec, *options.model, files));
    if (parts.back().spec.base_digest != spec.base_digest) {
      return absl::FailedPreconditionError("a generation to join was fitted to another base");
    }
  }
  std::vector<FittedTable> tables;
  for (const TableSpec& table : spec.tables) {
    const std::string name = PrintPlan(LearnedPlan(table.evaluations));
    std::optional<FittedTable> found;
    for (const Earlier& part : parts) {
      auto tensors = part.Of(spec, table);
      if (found.has_value() || !tensors.has_value()) continue;
      found = FittedTable{
          .tensors = *std::move(tensors), .start = "generation", .joined = ToldOf(part.spec, name)};
    }
    if (!found.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no generation to join has ", name, " as the recipe describes it"));
    }
    tables.push_back(*std::move(found));
  }
  return tables;
}

// The tensors of the tables that are kept; `result` gets all that is told of them. `all` is the
// spec of all tables.
TensorMap KeepWinners(const HypersolverSpec& all, const std::vector<Contest>& contests,
                      FittedHypersolver& result) {
  TensorMap tensors;
  result.spec.steps.clear();
  result.spec.tables.clear();
  for (size_t i = 0; i < contests.size(); ++i) {
    const Contest& contest = contests[i];
    result.remarks.push_back(
        absl::StrCat(PrintPlan(contest.learned.plan), ": ", RemarkOf(contest)));
    if (contest.fitted->joined.empty()) result.curves.push_back(contest.fitted->curve);
    if (!contest.kept) continue;
    result.spec.steps.push_back(all.steps[i]);
    result.spec.tables.push_back(all.tables[i]);
    tensors.merge(TensorMap(contest.fitted->tensors));
    result.calibration.plans.push_back(contest.learned);
    result.base_plans.push_back(contest.rival);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<FittedHypersolver> FitLearned(const Recipe& recipe,
                                             const HypersolverFitOptions& options) {
  if (!recipe.hypersolver().solver().has_learned() || !recipe.has_calibrate()) {
    return absl::InvalidArgumentError("the recipe holds no solver.learned or no calibrate");
  }
  const Model& model = *options.model;
  FittedHypersolver result;
  HS_ASSIGN_OR_RETURN(result.spec, RecipeLearnedSpec(recipe, model));
  const HypersolverSpec all = result.spec;
  HS_ASSIGN_OR_RETURN(const InputSource source,
                      InputSource::Make(recipe, model.spec(), all.direction, options.data_folder));
  HS_ASSIGN_OR_RETURN(SolveInputs held_out_rows, source.HeldOut(recipe.calibrate().rows()));
  HS_ASSIGN_OR_RETURN(const std::string probe,
                      ProbeBytes(source, recipe.hypersolver().probe_rows()));
  if (options.checkpoints != nullptr) options.checkpoints->Identify("data", source.Digest());
  std::vector<FittedTable> tables;
  if (!options.joined.empty()) {
    HS_ASSIGN_OR_RETURN(tables,
                        CatchDeviceFaults("training", [&] { return JoinTables(options, all); }));
  }
  // Before the fit, since its pace tells how long the rest will take.
  TimeAfter after;
  HS_ASSIGN_OR_RETURN(Measurer held_out, MakeMeasurer(recipe, *options.runtime, options.model,
                                                      all.direction, std::move(held_out_rows)));
  after.SetRough(options.seconds_after ? options.seconds_after(all, held_out) : 0);
  Rivals rivals(model, held_out);
  if (options.joined.empty()) {
    HS_ASSIGN_OR_RETURN(tables, CatchDeviceFaults("training", [&] {
                          return FitTables(recipe, options, all, source, rivals);
                        }));
  }
  HS_ASSIGN_OR_RETURN(const std::vector<Contest> contests,
                      HoldContests(model, all, tables, rivals));
  const TensorMap tensors = KeepWinners(all, contests, result);
  if (result.spec.tables.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no table beats the classical plans of its cost; nothing is written\n",
                     absl::StrJoin(result.remarks, "\n")));
  }
  HS_RETURN_IF_ERROR(MarkAgainstRivals(rivals, result.calibration.plans));
  result.spec.provenance = ProvenanceOf(recipe, options);
  // Each joined table tells its own.
  if (!options.joined.empty()) result.spec.provenance.erase("iterations");
  for (const Contest& contest : contests) {
    if (contest.kept) result.spec.provenance[PrintPlan(contest.learned.plan)] = RemarkOf(contest);
  }
  FillCalibration(recipe, model, *options.runtime, result.calibration);
  result.files = {{"hypersolver.json", PrintHypersolverSpec(result.spec)},
                  {"weights.safetensors", SerializeTensors(tensors)},
                  {"calibration.json", PrintCalibration(result.calibration)},
                  {"probe.safetensors", probe}};
  return result;
}

}  // namespace hyperserve
