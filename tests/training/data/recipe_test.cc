#include "training/data/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRecipe = R"({
  "format": 1, "name": "small", "seed": 4, "data": {"density": "moons"},
  "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
            "input": {"shape": [2]},
            "field": [{"linear": {"in": 2, "out": 8}}, {"tanh": {}},
                      {"linear": {"in": 8, "out": 2}}]},
  "fit": {"optimiser": {"iterations": 5, "batch": 16, "rate": 0.01}, "solver": "rk4:2"},
  "hypersolver": {
    "net": {"method": "heun", "direction": "noise_to_data", "steps": [1, 2],
            "inputs": ["state", "slope_1", "step"], "net": [{"linear": {"in": 5, "out": 2}}]},
    "optimiser": {"iterations": 5, "batch": 16, "rate": 0.01},
    "steps": [1, 1, 2, 4], "truth": "dopri5:1e-6", "truth_rows": 16, "swap_every": 2,
    "check_every": 5, "check_rows": 16, "probe_rows": 16},
  "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-6", "rows": 16, "batch": 16}})";

TEST(RecipeTest, ReadsAWholeRecipe) {
  const auto recipe = ParseRecipe(kRecipe);
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->name(), "small");
  EXPECT_EQ(recipe->hypersolver().steps_size(), 4);
  EXPECT_EQ(RecipeModelSpec(*recipe)->kind, ModelKind::kFlow);
}

TEST(RecipeTest, TheShareOfDroppedConditionsIsOne) {
  for (const char* share : {"-0.1", "1"}) {
    const std::string text = absl::StrReplaceAll(
        kRecipe, {{"\"solver\": \"rk4:2\"",
                   absl::StrCat("\"solver\": \"rk4:2\", \"drop_condition\": ", share)}});
    EXPECT_THAT(std::string(ParseRecipe(text).status().message()), HasSubstr("fit.drop_condition"));
  }
}

TEST(RecipeTest, DigestFollowsEveryField) {
  const auto recipe = ParseRecipe(kRecipe);
  const auto other = ParseRecipe(absl::StrReplaceAll(kRecipe, {{"\"seed\": 4", "\"seed\": 5"}}));
  EXPECT_EQ(RecipeDigest(*recipe), RecipeDigest(*ParseRecipe(kRecipe)));
  EXPECT_NE(RecipeDigest(*recipe), RecipeDigest(*other));
}

struct Mistake {
  const char* right;
  const char* wrong;
  const char* named;  // what the message must name
};

class RecipeMistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(RecipeMistakeTest, IsRefusedByName) {
  const Mistake& mistake = GetParam();
  const std::string text = absl::StrReplaceAll(kRecipe, {{mistake.right, mistake.wrong}});
  ASSERT_NE(text, kRecipe) << mistake.right;
  const auto recipe = ParseRecipe(text);
  ASSERT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument) << mistake.wrong;
  EXPECT_THAT(std::string(recipe.status().message()), HasSubstr(mistake.named));
}

INSTANTIATE_TEST_SUITE_P(
    All, RecipeMistakeTest,
    ::testing::Values(
        Mistake{"\"seed\": 4", "\"sead\": 4", "sead"},
        Mistake{"\"format\": 1, \"name\"", "\"format\": 2, \"name\"", "format"},
        Mistake{"\"name\": \"small\"", "\"name\": \"../small\"", "name"},
        Mistake{"\"density\": \"moons\"", "\"density\": \"moon\"", "data.density"},
        Mistake{"\"data\": {\"density\": \"moons\"}", "\"data\": {}", "data"},
        Mistake{"\"in\": 8, \"out\": 2", "\"in\": 9, \"out\": 2", "model"},
        Mistake{"\"solver\": \"rk4:2\"", "\"solver\": \"dopri5:1e-3\"", "fit.solver"},
        Mistake{"\"solver\": \"rk4:2\"", "\"solver\": \"ab2:4\"", "one-step method"},
        Mistake{"\"steps\": [1, 2],", "\"steps\": [1, 3],", "hypersolver.net.steps"},
        Mistake{"\"steps\": [1, 2],", "\"steps\": [1, 1],", "16 different candidates"},
        Mistake{"\"steps\": [1, 1, 2, 4]", "\"steps\": [0, 1, 2]", "hypersolver.steps"},
        Mistake{"\"probe_rows\": 16", "\"probe_rows\": 15", "hypersolver.probe_rows"},
        Mistake{"\"truth\": \"dopri5:1e-6\"", "\"truth\": \"heun:2\"", "hypersolver.truth"},
        Mistake{"\"truth\": \"dopri5:1e-6\"", "\"truth\": \"dopri5:1e-9\"", "tolerance is 1e-07"},
        Mistake{"\"batch\": 16}}", "\"batch\": 16, \"default_error\": -1}}", "default_error"},
        Mistake{"\"plans\": [\"heun:1\"]", "\"plans\": [\"dopri5:1e-9\"]", "calibrate.plans"},
        Mistake{"\"reference\": \"dopri5:1e-6\"", "\"reference\": \"dopri5:1e-30\"",
                "calibrate.reference"},
        Mistake{"\"plans\": [\"heun:1\"]", "\"plans\": [\"hyper_heun:1\"]", "calibrate.plans"},
        Mistake{"\"plans\": [\"heun:1\"]", "\"plans\": [\"heun:1/fast\"]", "calibrate.tiers"},
        Mistake{"\"batch\": 16}}", "\"batch\": 16, \"tiers\": [\"slow\"]}}", "calibrate.tiers"},
        Mistake{"\"batch\": 16}}", "\"batch\": 16, \"default_agreement\": 2}}",
                "default_agreement"},
        Mistake{"\"rate\": 0.01}, \"solver\"", "\"rate\": 0}, \"solver\"", "fit.optimiser.rate"}));

TEST(RecipeTest, FlowMatchingTakesThePlaceOfSolverAndPenalties) {
  const auto status = [](const std::string& fit) {
    return ParseRecipe(absl::StrReplaceAll(kRecipe, {{"\"solver\": \"rk4:2\"}", fit + "}"}}))
        .status();
  };
  EXPECT_TRUE(status(R"("flow_matching": {"pairing_rounds": 10})").ok());
  EXPECT_TRUE(status(R"("flow_matching": {})").ok());
  for (const char* both : {R"("solver": "rk4:2", )", R"("speed_penalty": 1, )"}) {
    EXPECT_THAT(std::string(status(both + std::string(R"("flow_matching": {})")).message()),
                HasSubstr("no solver, speed_penalty or bend_penalty"));
  }
  EXPECT_THAT(std::string(status(R"("flow_matching": {"pairing_rounds": -1})").message()),
              HasSubstr("pairing_rounds"));
}

// A recipe whose hypersolver part is a learned solver.
std::string LearnedRecipe(const std::string& learned, const std::string& beside = "") {
  return absl::StrCat(R"({"format": 1, "name": "small", "seed": 4, "data": {"density": "moons"},
    "hypersolver": {"solver": {"learned": )",
                      learned, "}, ", beside, R"(
      "optimiser": {"iterations": 5, "batch": 16, "rate": 0.01}, "truth": "dopri5:1e-6",
      "truth_rows": 16, "check_every": 5, "check_rows": 16, "probe_rows": 16}})");
}

TEST(RecipeTest, ReadsALearnedSolver) {
  const auto recipe = ParseRecipe(LearnedRecipe(
      R"({"direction": "noise_to_data", "evaluations": [0, 2], "coefficients": "map",
          "net": {"hidden": [8]}})"));
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->hypersolver().solver().learned().evaluations_size(), 2);
}

TEST(RecipeTest, RefusesALearnedSolverThatIsNone) {
  const auto message = [](const std::string& text) {
    return std::string(ParseRecipe(text).status().message());
  };
  const std::string good = R"({"evaluations": [2], "coefficients": "map"})";
  EXPECT_EQ(message(LearnedRecipe(good)), "");
  EXPECT_THAT(message(LearnedRecipe("{}")), HasSubstr("learned.evaluations"));
  EXPECT_THAT(message(LearnedRecipe(R"({"evaluations": [2], "net": {}})")), HasSubstr("hidden"));
  EXPECT_THAT(message(LearnedRecipe(R"({"evaluations": [2], "net": {"hidden": [0]}})")),
              HasSubstr("hidden"));
  EXPECT_THAT(message(LearnedRecipe(R"({"evaluations": [2], "maps_up_to": -1})")),
              HasSubstr("maps_up_to"));
  EXPECT_THAT(message(LearnedRecipe(good, "\"steps\": [2],")), HasSubstr("has no net, steps"));
  EXPECT_THAT(message(LearnedRecipe(good, "\"swap_every\": 2,")), HasSubstr("swap_every"));
}

TEST(RecipeTest, ALearnedSolverHasOneNetForAllOrOneForEach) {
  const auto message = [](const std::string& nets) {
    return std::string(
        ParseRecipe(LearnedRecipe(absl::StrCat(R"({"evaluations": [1, 2], "coefficients": "map", )",
                                               nets, "}")))
            .status()
            .message());
  };
  EXPECT_EQ(message(R"("nets": [{"hidden": [8]}, {}])"), "");
  EXPECT_THAT(message(R"("nets": [{"hidden": [8]}])"), HasSubstr("one for each of evaluations"));
  EXPECT_THAT(message(R"("nets": [{}, {}], "net": {"hidden": [8]})"),
              HasSubstr("in the place of net"));
  EXPECT_THAT(message(R"("nets": [{"hidden": [0]}, {}])"), HasSubstr("nets.hidden"));
  EXPECT_EQ(message(R"("rates": [0.01, 0.001])"), "");
  EXPECT_THAT(message(R"("rates": [0.01])"), HasSubstr("rates: one for each of evaluations"));
  EXPECT_THAT(message(R"("rates": [0.01, 0])"), HasSubstr("above 0"));
}

TEST(RecipeTest, KeepsSomeTablesTheirNetsAndRates) {
  Recipe recipe = ParseRecipe(LearnedRecipe(R"({"evaluations": [1, 2, 4], "coefficients": "map",
      "nets": [{"hidden": [8]}, {}, {"hidden": [4]}], "rates": [0.03, 0.02, 0.01]})"))
                      .value();
  ASSERT_TRUE(KeepEvaluations("4,1", recipe).ok());
  const training::LearnedSolver& learned = recipe.hypersolver().solver().learned();
  ASSERT_EQ(learned.evaluations_size(), 2);
  EXPECT_EQ(learned.evaluations(0), 1);
  EXPECT_EQ(learned.evaluations(1), 4);
  ASSERT_EQ(learned.nets_size(), 2);
  EXPECT_EQ(learned.nets(0).hidden(0), 8);
  EXPECT_EQ(learned.nets(1).hidden(0), 4);
  EXPECT_EQ(TableOptimiser(recipe.hypersolver(), 0).rate(), 0.03);
  EXPECT_EQ(TableOptimiser(recipe.hypersolver(), 1).rate(), 0.01);
  EXPECT_THAT(std::string(KeepEvaluations("2", recipe).message()),
              HasSubstr("'2' is none of hypersolver.solver.learned.evaluations: 1, 4"));
}

TEST(RecipeTest, AReadoutOfImagesIsAtHalfOrAtFullResolution) {
  const auto model = Model::Load(absl::StrCat(HYPERSERVE_MODELS, "/cifar")).value();
  Recipe recipe = ReadRecipe(absl::StrCat(HYPERSERVE_RECIPES, "/cifar_learned.json")).value();
  training::LearnedSolver& learned =
      *recipe.mutable_hypersolver()->mutable_solver()->mutable_learned();
  learned.clear_nets();
  training::Readout& net = *learned.mutable_net();
  net.clear_hidden();
  net.add_hidden(8);
  const HypersolverSpec half = RecipeLearnedSpec(recipe, *model).value();
  EXPECT_EQ(half.tables[0].net.size(), 5u) << "two convolutions, SiLU, both shuffles";
  EXPECT_THAT(PrintHypersolverSpec(half), HasSubstr("pixel_unshuffle"));
  net.set_full_resolution(true);
  const HypersolverSpec full = RecipeLearnedSpec(recipe, *model).value();
  EXPECT_EQ(full.tables[0].net.size(), 3u);
  EXPECT_THAT(PrintHypersolverSpec(full), Not(HasSubstr("pixel_unshuffle")));
}

TEST(RecipeTest, EveryCommittedRecipeReads) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HYPERSERVE_RECIPES)) {
    if (entry.is_directory()) continue;
    const auto recipe = ReadRecipe(entry.path().string());
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    ++count;
  }
  EXPECT_GE(count, 20);
}

}  // namespace
}  // namespace hyperserve
