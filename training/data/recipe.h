// Reads a recipe and the specs and plans in it. training/data/recipe.proto explains its fields. All
// but ReadRecipe are pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

using training::Recipe;

// Parses and checks a recipe. kInvalidArgument names the field, what is wrong with it and what is
// allowed. A part that the recipe does not hold is no error here: the command that needs it says
// so.
absl::StatusOr<Recipe> ParseRecipe(std::string_view json);
// The same of a file, which it reads; kNotFound where there is none.
absl::StatusOr<Recipe> ReadRecipe(const std::string& path);

// The parts of a file of rows, whether it holds points, pairs or states.
inline const training::Points& PartsOf(const Recipe& recipe) {
  const training::Data& data = recipe.data();
  return data.has_states() ? data.states() : data.has_pairs() ? data.pairs() : data.points();
}
// The validation rows that the recipe sets aside in files; of a density or a signal, which draw
// them, 0.
inline int ValidationRows(const Recipe& recipe) {
  if (recipe.data().has_idx()) return recipe.data().idx().validation_rows();
  return PartsOf(recipe).validation_rows();
}

// The tiers in which calibration measures; never none.
std::vector<Tier> RecipeTiers(const Recipe& recipe);

// Lower-case hex SHA-256 of the recipe's canonical bytes, for the provenance of a generation.
std::string RecipeDigest(const Recipe& recipe);

// kUnimplemented: a classifier takes conditions, which no source of images has.
absl::Status CheckConditionSource(const ModelSpec& spec);

// The specs in the recipe, checked by the parsers of core/model, with their errors, and by
// CheckConditionSource.
absl::StatusOr<ModelSpec> RecipeModelSpec(const Recipe& recipe);
// Fills in the base digest of `model`, and the range of eps from the fewest and the most steps of
// the recipe.
absl::StatusOr<HypersolverSpec> RecipeHypersolverSpec(const Recipe& recipe, const Model& model);
// The same of a recipe with solver.learned: one table for each n, with its readout.
absl::StatusOr<HypersolverSpec> RecipeLearnedSpec(const Recipe& recipe, const Model& model);

// The optimiser of the table at a place among solver.learned.evaluations.
training::Optimiser TableOptimiser(const training::HypersolverFit& fit, int place);

// Keeps the tables of some n of solver.learned, "1,3", in the order of the recipe, with their nets
// and rates.
// kInvalidArgument: the recipe has no such table.
absl::Status KeepEvaluations(std::string_view numbers, Recipe& recipe);

// A plan in tier exact. kInvalidArgument: it is not fixed, classical and of equal steps, or not
// adaptive. Fixed plans of ab2 pass: who takes single steps checks the method.
absl::StatusOr<FixedPlan> ParseFixedPlan(std::string_view text);
absl::StatusOr<AdaptivePlan> ParseAdaptivePlan(std::string_view text);

}  // namespace hyperserve
