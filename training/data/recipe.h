// Reading a recipe (training/data/recipe.proto).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

using training::Recipe;

// kInvalidArgument names the field, what is wrong with it and what would be right. Parts that the
// recipe does not hold are not missed here: see the Require functions.
absl::StatusOr<Recipe> ParseRecipe(std::string_view json);
absl::StatusOr<Recipe> ReadRecipe(const std::string& path);

// Lower-case hex SHA-256 of the recipe's canonical bytes: what provenance names.
std::string RecipeDigest(const Recipe& recipe);

// The embedded specs, through the parsers of core/model; what they print is what is written.
absl::StatusOr<ModelSpec> RecipeModelSpec(const Recipe& recipe);
// Of this base: its digest, and eps from the fewest and the most steps of the recipe.
absl::StatusOr<HypersolverSpec> RecipeHypersolverSpec(const Recipe& recipe, const Model& model);

// A plan that must be fixed and classical, or adaptive.
absl::StatusOr<FixedPlan> ParseFixedPlan(std::string_view text);
absl::StatusOr<AdaptivePlan> ParseAdaptivePlan(std::string_view text);

}  // namespace hyperserve
