#include "training/data/recipe.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/tensor.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec_limits.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/smallest_tolerance.h"
#include "hyperserve/v1/model.pb.h"
#include "training/data/density.h"
#include "training/data/signal.h"

namespace hyperserve {
namespace {

constexpr int64_t kMaxRecipeBytes = 1 << 20;
using spec_limits::kGateClaims, spec_limits::kProbeRowsMax, spec_limits::kProbeRowsMin;

constexpr int kMaxSteps = 64;  // the largest K that a correction is trained at

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": ", std::string(what)));
}

absl::Status Check(bool holds, std::string_view field, std::string_view what) {
  return holds ? absl::OkStatus() : Wrong(field, what);
}

// An adaptive plan whose tolerance the arithmetic of `tier` can meet; else a solve goes on to the
// step limit, and its rounding errors are taken for the truth.
absl::Status CheckTolerance(const AdaptivePlan& plan, Tier tier, std::string_view field) {
  return Check(
      std::max(plan.rtol, plan.atol) >= SmallestTolerance(tier), field,
      absl::StrCat(PrintPlan({.choice = plan}), " cannot be met by tier ", Absl(TierName(tier)),
                   "; the smallest sensible tolerance is ", SmallestTolerance(tier)));
}

absl::Status CheckTruth(const std::string& text, Tier tier, std::string_view field) {
  const auto plan = ParseAdaptivePlan(text);
  HS_RETURN_IF_ERROR(Annotate(plan.status(), field));
  return CheckTolerance(*plan, tier, field);
}

absl::Status CheckOptimiser(const training::Optimiser& o, const std::string& field) {
  HS_RETURN_IF_ERROR(Check(o.iterations() >= 1, field + ".iterations", "at least 1"));
  HS_RETURN_IF_ERROR(Check(o.batch() >= 1, field + ".batch", "at least 1"));
  HS_RETURN_IF_ERROR(Check(o.rate() > 0, field + ".rate", "above 0"));
  HS_RETURN_IF_ERROR(Check(o.final_rate() >= 0 && o.final_rate() <= o.rate(), field + ".final_rate",
                           "from 0 to rate"));
  HS_RETURN_IF_ERROR(Check(o.warm_up() >= 0, field + ".warm_up", "not negative"));
  HS_RETURN_IF_ERROR(Check(o.weight_decay() >= 0, field + ".weight_decay", "not negative"));
  HS_RETURN_IF_ERROR(Check(o.patience() >= 0, field + ".patience", "not negative"));
  HS_RETURN_IF_ERROR(Check(o.seconds() >= 0, field + ".seconds", "not negative"));
  return Check(o.clip_norm() >= 0, field + ".clip_norm", "not negative");
}

absl::Status CheckModelFit(const training::ModelFit& fit) {
  HS_RETURN_IF_ERROR(CheckOptimiser(fit.optimiser(), "fit.optimiser"));
  HS_RETURN_IF_ERROR(Check(fit.check_every() >= 0, "fit.check_every", "not negative"));
  HS_RETURN_IF_ERROR(Check((fit.check_every() > 0) == (fit.check_rows() > 0), "fit.check_rows",
                           "above 0 with fit.check_every, and 0 without"));
  HS_RETURN_IF_ERROR(Check(fit.optimiser().patience() == 0 || fit.check_every() > 0,
                           "fit.optimiser.patience",
                           "needs fit.check_every and fit.check_rows, as 100 and 2000"));
  HS_RETURN_IF_ERROR(Check(fit.drop_condition() >= 0 && fit.drop_condition() < 1,
                           "fit.drop_condition", "from 0 to below 1"));
  if (fit.has_flow_matching()) {
    HS_RETURN_IF_ERROR(
        Check(fit.solver().empty() && fit.speed_penalty() == 0 && fit.bend_penalty() == 0, "fit",
              "a fit with flow_matching has no solver, speed_penalty or bend_penalty"));
    return Check(fit.flow_matching().pairing_rounds() >= 0, "fit.flow_matching.pairing_rounds",
                 "not negative");
  }
  const auto solver = ParseFixedPlan(fit.solver());
  HS_RETURN_IF_ERROR(Annotate(solver.status(), "fit.solver"));
  HS_RETURN_IF_ERROR(Check(!RunsFromTable(solver->method.method), "fit.solver",
                           absl::StrCat(fit.solver(), " is not of a one-step method, as rk4:2")));
  HS_RETURN_IF_ERROR(Check(fit.speed_penalty() >= 0, "fit.speed_penalty", "not negative"));
  return Check(fit.bend_penalty() >= 0, "fit.bend_penalty", "not negative");
}

// The parts of a correction's fit.
absl::Status CheckCorrectionFit(const training::HypersolverFit& fit) {
  HS_RETURN_IF_ERROR(Check(fit.net().net_size() > 0, "hypersolver.net.net", "no layers"));
  const std::set<int> claims(fit.net().steps().begin(), fit.net().steps().end());
  HS_RETURN_IF_ERROR(Check(!claims.empty() && claims.size() <= kGateClaims &&
                               claims.size() == static_cast<size_t>(fit.net().steps_size()),
                           "hypersolver.net.steps",
                           absl::StrCat("1 to ", kGateClaims, " different candidates")));
  HS_RETURN_IF_ERROR(Check(fit.net().eps_size() == 0 && fit.net().base_digest().empty() &&
                               fit.net().provenance_size() == 0,
                           "hypersolver.net",
                           "eps, base_digest and provenance are the trainer's to fill"));
  HS_RETURN_IF_ERROR(Check(fit.steps_size() > 0, "hypersolver.steps", "no step counts"));
  for (const int steps : fit.steps()) {
    HS_RETURN_IF_ERROR(Check(steps >= 1 && steps <= kMaxSteps, "hypersolver.steps",
                             absl::StrCat(steps, " lies outside 1 to ", kMaxSteps)));
  }
  for (const int steps : fit.net().steps()) {
    HS_RETURN_IF_ERROR(Check(std::count(fit.steps().begin(), fit.steps().end(), steps) > 0,
                             "hypersolver.net.steps",
                             absl::StrCat(steps, " is not among hypersolver.steps")));
  }
  HS_RETURN_IF_ERROR(
      Check(fit.pretrain_iterations() >= 0, "hypersolver.pretrain_iterations", "not negative"));
  HS_RETURN_IF_ERROR(Check(fit.swap_every() >= 1, "hypersolver.swap_every", "at least 1"));
  return Check(fit.trajectory_share() >= 0 && fit.trajectory_share() <= 1,
               "hypersolver.trajectory_share", "from 0 to 1");
}

absl::Status CheckWidths(const training::Readout& net, const char* name) {
  const bool fits = std::all_of(net.hidden().begin(), net.hidden().end(),
                                [](const int width) { return width >= 1; });
  return Check(fits, name, "each is at least 1");
}

// The parts of a learned solver's fit. The parser of its spec checks coefficients and direction.
absl::Status CheckLearnedFit(const training::HypersolverFit& fit) {
  HS_RETURN_IF_ERROR(Check(fit.solver().has_learned(), "hypersolver.solver",
                           "names no solver; the known one is learned"));
  HS_RETURN_IF_ERROR(Check(!fit.has_net() && fit.steps_size() == 0 &&
                               fit.pretrain_iterations() == 0 && fit.swap_every() == 0 &&
                               fit.trajectory_share() == 0,
                           "hypersolver",
                           "a fit with solver has no net, steps, pretrain_iterations, swap_every "
                           "or trajectory_share"));
  const auto& evaluations = fit.solver().learned().evaluations();
  HS_RETURN_IF_ERROR(Check(!evaluations.empty() && evaluations.size() <= int{kGateClaims},
                           "hypersolver.solver.learned.evaluations",
                           absl::StrCat("1 to ", kGateClaims, " numbers")));
  const training::LearnedSolver& learned = fit.solver().learned();
  HS_RETURN_IF_ERROR(CheckWidths(learned.net(), "hypersolver.solver.learned.net.hidden"));
  for (const training::Readout& net : learned.nets()) {
    HS_RETURN_IF_ERROR(CheckWidths(net, "hypersolver.solver.learned.nets.hidden"));
  }
  HS_RETURN_IF_ERROR(Check(
      learned.nets().empty() || (!learned.has_net() && learned.nets_size() == evaluations.size()),
      "hypersolver.solver.learned.nets", "one for each of evaluations, in the place of net"));
  const bool rates_fit = std::all_of(
      learned.rates().begin(), learned.rates().end(),
      [&](const double rate) { return rate > 0 && rate >= fit.optimiser().final_rate(); });
  HS_RETURN_IF_ERROR(
      Check(learned.rates().empty() || (rates_fit && learned.rates_size() == evaluations.size()),
            "hypersolver.solver.learned.rates",
            "one for each of evaluations, above 0 and at least optimiser.final_rate"));
  HS_RETURN_IF_ERROR(
      Check(learned.maps_up_to() >= 0, "hypersolver.solver.learned.maps_up_to", "not negative"));
  return Check(!learned.has_net() || learned.net().hidden_size() > 0,
               "hypersolver.solver.learned.net.hidden", "at least one hidden layer");
}

absl::Status CheckHypersolverFit(const training::HypersolverFit& fit) {
  HS_RETURN_IF_ERROR(CheckOptimiser(fit.optimiser(), "hypersolver.optimiser"));
  HS_RETURN_IF_ERROR(fit.has_solver() ? CheckLearnedFit(fit) : CheckCorrectionFit(fit));
  HS_RETURN_IF_ERROR(CheckTruth(fit.truth(), Tier::kExact, "hypersolver.truth"));
  HS_RETURN_IF_ERROR(Check(fit.truth_rows() >= 1, "hypersolver.truth_rows", "at least 1"));
  HS_RETURN_IF_ERROR(Check(fit.check_every() >= 1, "hypersolver.check_every", "at least 1"));
  HS_RETURN_IF_ERROR(Check(fit.check_rows() >= 1, "hypersolver.check_rows", "at least 1"));
  return Check(fit.probe_rows() >= kProbeRowsMin && fit.probe_rows() <= kProbeRowsMax,
               "hypersolver.probe_rows",
               absl::StrCat("from ", kProbeRowsMin, " to ", kProbeRowsMax));
}

absl::Status CheckCalibration(const training::CalibrationPlan& calibrate) {
  for (const std::string& text : calibrate.plans()) {
    auto plan = ParsePlan(text);
    HS_RETURN_IF_ERROR(Annotate(plan.status(), "calibrate.plans"));
    HS_RETURN_IF_ERROR(Check(!plan->hypersolved() && (plan->fixed() || plan->adaptive()),
                             "calibrate.plans", absl::StrCat(text, " is not a classical plan")));
    HS_RETURN_IF_ERROR(Check(plan->tier == Tier::kExact, "calibrate.plans",
                             absl::StrCat(text, ": tiers stand in calibrate.tiers")));
    if (const AdaptivePlan* const adaptive = plan->adaptive()) {
      HS_RETURN_IF_ERROR(CheckTolerance(*adaptive, Tier::kExact, "calibrate.plans"));
    }
  }
  for (const std::string& tier : calibrate.tiers()) {
    HS_RETURN_IF_ERROR(Check(TierFromName(tier).has_value(), "calibrate.tiers",
                             absl::StrCat(tier, " is none of exact, fast, double")));
  }
  HS_RETURN_IF_ERROR(Check(calibrate.default_agreement() >= 0 && calibrate.default_agreement() <= 1,
                           "calibrate.default_agreement", "from 0 to 1"));
  HS_RETURN_IF_ERROR(
      Check(calibrate.default_error() >= 0, "calibrate.default_error", "not negative"));
  // It is solved in tier double, whatever the tiers of the plans.
  HS_RETURN_IF_ERROR(CheckTruth(calibrate.reference(), Tier::kDouble, "calibrate.reference"));
  HS_RETURN_IF_ERROR(Check(calibrate.rows() >= 1, "calibrate.rows", "at least 1"));
  return Check(calibrate.batch() >= 1, "calibrate.batch", "at least 1");
}

const char* PartsName(const training::Data& data) {
  return data.has_states() ? "data.states" : data.has_pairs() ? "data.pairs" : "data.points";
}

absl::Status CheckParts(const training::Points& points, std::string_view name) {
  HS_RETURN_IF_ERROR(Check(points.validation_rows() >= kProbeRowsMax,
                           absl::StrCat(Absl(name), ".validation_rows"),
                           absl::StrCat("at least ", kProbeRowsMax)));
  return Check(points.held_out_rows() >= 1, absl::StrCat(Absl(name), ".held_out_rows"),
               "at least 1");
}

absl::Status Validate(const Recipe& recipe) {
  HS_RETURN_IF_ERROR(Check(recipe.format() == 1, "format", "this program reads format 1"));
  HS_RETURN_IF_ERROR(Annotate(CheckName(recipe.name()), "name"));
  HS_RETURN_IF_ERROR(Check(recipe.seed() >= 0, "seed", "not negative"));
  switch (recipe.data().source_case()) {
    case training::Data::kDensity:
      HS_RETURN_IF_ERROR(
          Annotate(Density::Named(recipe.data().density()).status(), "data.density"));
      break;
    case training::Data::kIdx:
      HS_RETURN_IF_ERROR(Check(recipe.data().idx().validation_rows() >= kProbeRowsMax,
                               "data.idx.validation_rows",
                               absl::StrCat("at least ", kProbeRowsMax)));
      break;
    case training::Data::kPoints:
    case training::Data::kPairs:
    case training::Data::kStates:
      HS_RETURN_IF_ERROR(CheckParts(PartsOf(recipe), PartsName(recipe.data())));
      break;
    case training::Data::kSignal:
      HS_RETURN_IF_ERROR(Annotate(Signal::Make(recipe.data().signal()).status(), "data.signal"));
      break;
    default:
      return Wrong("data", "names no source: idx, density, points, states, pairs or signal");
  }
  if (recipe.has_model()) HS_RETURN_IF_ERROR(Annotate(RecipeModelSpec(recipe).status(), "model"));
  if (recipe.has_fit()) HS_RETURN_IF_ERROR(CheckModelFit(recipe.fit()));
  if (recipe.has_hypersolver()) HS_RETURN_IF_ERROR(CheckHypersolverFit(recipe.hypersolver()));
  if (recipe.has_calibrate()) HS_RETURN_IF_ERROR(CheckCalibration(recipe.calibrate()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Recipe> ParseRecipe(std::string_view json) {
  Recipe recipe;
  HS_RETURN_IF_ERROR(ParseProtoJson(json, &recipe));
  HS_RETURN_IF_ERROR(Validate(recipe));
  return recipe;
}

absl::StatusOr<Recipe> ReadRecipe(const std::string& path) {
  HS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxRecipeBytes));
  auto recipe = ParseRecipe(json);
  if (!recipe.ok()) return Annotate(recipe.status(), path);
  return recipe;
}

std::vector<Tier> RecipeTiers(const Recipe& recipe) {
  std::vector<Tier> tiers;
  for (const std::string& name : recipe.calibrate().tiers()) tiers.push_back(*TierFromName(name));
  if (tiers.empty()) tiers.push_back(Tier::kExact);
  return tiers;
}

std::string RecipeDigest(const Recipe& recipe) { return Sha256Hex(CanonicalBytes(recipe)); }

absl::Status CheckConditionSource(const ModelSpec& spec) {
  if (spec.condition.empty() || spec.kind != ModelKind::kClassifier) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "condition.shape is ", ShapeText(spec.condition),
      ", and the trainer's images come without conditions; fit the net elsewhere, and publish it"));
}

absl::StatusOr<ModelSpec> RecipeModelSpec(const Recipe& recipe) {
  HS_ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(PrintProtoJson(recipe.model())));
  HS_RETURN_IF_ERROR(CheckConditionSource(spec));
  return spec;
}

absl::Status KeepEvaluations(std::string_view numbers, Recipe& recipe) {
  const training::LearnedSolver whole = recipe.hypersolver().solver().learned();
  const std::vector<std::string> wanted = absl::StrSplit(Absl(numbers), ',');
  std::vector<std::string> names;
  for (const int evaluations : whole.evaluations()) names.push_back(absl::StrCat(evaluations));
  for (const std::string& name : wanted) {
    HS_RETURN_IF_ERROR(
        Check(std::find(names.begin(), names.end(), name) != names.end(), "--evaluations",
              absl::StrCat("'", name, "' is none of hypersolver.solver.learned.evaluations: ",
                           absl::StrJoin(names, ", "))));
  }
  training::LearnedSolver& kept =
      *recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  kept.clear_evaluations();
  kept.clear_nets();
  kept.clear_rates();
  for (int place = 0; place < whole.evaluations_size(); ++place) {
    if (std::find(wanted.begin(), wanted.end(), names[place]) == wanted.end()) continue;
    kept.add_evaluations(whole.evaluations(place));
    if (!whole.nets().empty()) *kept.add_nets() = whole.nets(place);
    if (!whole.rates().empty()) kept.add_rates(whole.rates(place));
  }
  return absl::OkStatus();
}

absl::StatusOr<FixedPlan> ParseFixedPlan(std::string_view text) {
  HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
  if (plan.fixed() == nullptr || plan.hypersolved() || plan.tier != Tier::kExact ||
      !plan.fixed()->grid.uniform()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(text), "' is not a fixed classical plan of equal steps like midpoint:4"));
  }
  return *plan.fixed();
}

absl::StatusOr<AdaptivePlan> ParseAdaptivePlan(std::string_view text) {
  HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
  if (plan.adaptive() == nullptr || plan.tier != Tier::kExact) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is not an adaptive plan like dopri5:1e-6"));
  }
  return *plan.adaptive();
}

}  // namespace hyperserve
