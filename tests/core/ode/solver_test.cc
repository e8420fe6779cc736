// The solve loop: depths, counts, statuses, pieces.
#include "core/ode/solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"
#include "core/plan/step_grid.h"
#include "tests/testing/row_matrix.h"
#include "tests/testing/solve_rows.h"

namespace hyperserve {
namespace {

using testing::Admit;
using testing::CorrectedRowMatrixSpace;
using testing::OptionsOf;
using testing::Problem;
using testing::RowField;
using testing::RowMatrix;
using testing::RowMatrixSpace;
using testing::Solve;

const RowField kWave = [](int64_t, double s, std::span<const double> z, std::span<double> dz) {
  for (size_t d = 0; d < z.size(); ++d) dz[d] = z[d] * std::cos(s);
};
const MethodChoice kPairs[] = {{.method = Method::kHeunEuler},
                               {.method = Method::kBosh3},
                               {.method = Method::kTsit5},
                               {.method = Method::kDopri5}};

std::vector<MethodChoice> EveryMethod() {
  std::vector<MethodChoice> choices;
  for (const MethodName& name : kMethodNames) {
    choices.push_back({.method = name.method, .alpha = name.method == Method::kAlpha ? 0.75 : 0.0});
  }
  return choices;
}

// A field that notes the depths it is asked at.
struct Recorder {
  std::vector<double> depths;
  RowMatrixSpace space{[this](int64_t, double s, std::span<const double> z, std::span<double> dz) {
    depths.push_back(s);
    for (size_t d = 0; d < z.size(); ++d) dz[d] = z[d] * std::cos(s);
  }};
};

TEST(FixedSolve, DepthsDoNotDrift) {
  Recorder recorder;
  Solve(recorder.space, {.tableau = kEulerTableau, .control = FixedSteps{.steps = 1000}},
        RowMatrix::Of({{1.0}}));
  ASSERT_EQ(recorder.depths.size(), 1000u);
  for (size_t k = 0; k < 1000; ++k) {
    EXPECT_EQ(recorder.depths[k], static_cast<double>(k) / 1000.0);
  }
}

// z' = z under Euler's method is a product of the steps.
TEST(FixedSolve, StepsEndWhereTheGridSays) {
  const RowMatrixSpace space(
      [](int64_t, double, std::span<const double> z, std::span<double> dz) { dz[0] = z[0]; });
  const StepGrid grid = {.kind = StepGrid::Kind::kListed, .shares = {0, 0.125, 0.5, 1}};
  const auto result = Solve(space,
                            {.tableau = kEulerTableau,
                             .control = FixedSteps{.steps = 3},
                             .s0 = 1.0,
                             .s1 = 3.0,
                             .save_at = {1.25, 2.0},
                             .grid = grid},
                            RowMatrix::Of({{1.0}}));
  EXPECT_EQ(result.state.row(0)[0], 1.25 * 1.75 * 2.0);
  EXPECT_EQ(result.saved[0].row(0)[0], 1.25);
  EXPECT_EQ(result.saved[1].row(0)[0], 1.25 * 1.75);
  EXPECT_EQ(result.counts[0].nfe, 3);
}

TEST(FixedSolve, KeepsTheOrderOfItsMethodOnAGrid) {
  const RowMatrixSpace space(kWave);
  for (const StepGrid::Kind kind : {StepGrid::Kind::kCosine, StepGrid::Kind::kSway}) {
    const StepGrid grid = {.kind = kind, .sway = kind == StepGrid::Kind::kSway ? -1.0 : 0.0};
    for (const MethodChoice& method :
         {MethodChoice{.method = Method::kEuler}, MethodChoice{.method = Method::kHeun},
          MethodChoice{.method = Method::kRk4}}) {
      const auto error = [&](int steps) {
        const auto result = Solve(space,
                                  {.tableau = TableauFor(method),
                                   .control = FixedSteps{.steps = steps},
                                   .s1 = 2.0,
                                   .grid = grid},
                                  RowMatrix::Of({{1.0}}));
        return std::abs(result.state.row(0)[0] - std::exp(std::sin(2.0)));
      };
      const int order = TableauFor(method).order;
      EXPECT_NEAR(std::log2(error(32) / error(64)), order, 0.25) << static_cast<int>(kind);
    }
  }
}

TEST(Solve, TheFieldIsNeverAskedOutsideTheSpan) {
  const std::vector<std::pair<double, double>> spans = {
      {0.0, 1.0}, {-3.3, 1e-3}, {0.1, 0.7}, {1e10, 1e10 + 1.0}, {-1e-9, 1e-9}};
  for (const MethodChoice& method : EveryMethod()) {
    for (const auto& [s0, s1] : spans) {
      std::vector<StepControl> controls = {FixedSteps{.steps = 1}, FixedSteps{.steps = 7},
                                           FixedSteps{.steps = 10}};
      if (NameOf(method.method).embedded) controls.push_back(ErrorControl{.rtol = 1e-6});
      for (const auto& control : controls) {
        Recorder recorder;
        const auto result = Solve(
            recorder.space, {.tableau = TableauFor(method), .control = control, .s0 = s0, .s1 = s1},
            RowMatrix::Of({{1.0}}));
        EXPECT_EQ(result.status[0], RowStatus::kConverged);
        EXPECT_EQ(result.depth[0], s1);
        EXPECT_GE(*std::min_element(recorder.depths.begin(), recorder.depths.end()), s0);
        EXPECT_LE(*std::max_element(recorder.depths.begin(), recorder.depths.end()), s1);
        EXPECT_EQ(result.counts[0].nfe, static_cast<int64_t>(recorder.depths.size()))
            << NameOf(method.method).name << " on [" << s0 << ", " << s1 << "]";
      }
    }
  }
}

TEST(FixedSolve, EvaluationsPerStepAreExact) {
  const RowMatrixSpace space(kWave);
  for (const MethodChoice& method : EveryMethod()) {
    const int64_t steps = 5;
    const auto result =
        Solve(space, {.tableau = TableauFor(method), .control = FixedSteps{.steps = steps}},
              RowMatrix::Of({{1.0}, {2.0}}));
    const int64_t stages[] = {1, 2, 2, 2, 2, 3, 4, 4, 2, 3, 6, 6};
    for (const RowCounts& counts : result.counts) {
      EXPECT_EQ(counts, (RowCounts{.nfe = steps * stages[static_cast<size_t>(method.method)],
                                   .accepted = steps}))
          << NameOf(method.method).name;
    }
  }
}

TEST(FixedSolve, AHypersolvedStepCostsOneCorrectionMore) {
  const CorrectedRowMatrixSpace space(
      kWave, [](const CorrectedRowMatrixSpace::Inputs& in, std::span<double> g) {
        g[0] = 0.1 * in.z[0] + in.z_first[0];
      });
  const auto solve = [&](bool hypersolved) {
    return Solve(space,
                 {.tableau = TableauFor({.method = Method::kHeun}),
                  .control = FixedSteps{.steps = 4},
                  .hypersolved = hypersolved},
                 RowMatrix::Of({{1.0}}));
  };
  EXPECT_EQ(solve(true).counts[0],
            (RowCounts{.nfe = 8, .correction_evaluations = 4, .accepted = 4}));
  EXPECT_EQ(solve(false).counts[0], (RowCounts{.nfe = 8, .accepted = 4}));
  // The same steps by hand: z_first stays the start of the whole solve.
  RowMatrix z = RowMatrix::Of({{1.0}});
  const RowMatrix z_first = z;
  for (int k = 0; k < 4; ++k) {
    z = HypersolvedStep(space, TableauFor({.method = Method::kHeun}), {0.25 * k}, {0.25}, z,
                        z_first)
            .z_next;
  }
  EXPECT_EQ(solve(true).state.values, z.values);
}

TEST(ControlledSolve, EvaluationsFollowFromTheSteps) {
  for (const MethodChoice& method : kPairs) {
    const Tableau tableau = TableauFor(method);
    Recorder recorder;
    const auto result =
        Solve(recorder.space,
              {.tableau = tableau, .control = ErrorControl{.rtol = 1e-4, .atol = 1e-4}, .s1 = 20.0},
              RowMatrix::Of({{1.0}}));
    const RowCounts& counts = result.counts[0];
    const int64_t attempts = counts.accepted + counts.rejected;
    EXPECT_GT(counts.rejected, 0) << "the problem should be hard enough to refuse steps";
    // Two before the first step; then every stage but the first, which is known: from the step
    // before where first is last, else evaluated after each accepted step but the last.
    const int64_t first_stages = tableau.fsal() ? 0 : counts.accepted - 1;
    EXPECT_EQ(counts.nfe, 2 + attempts * (tableau.stages() - 1) + first_stages);
    EXPECT_EQ(counts.nfe, static_cast<int64_t>(recorder.depths.size()));
  }
}

TEST(ControlledSolve, TheErrorIsOfTheSizeOfTheTolerance) {
  const RowMatrixSpace space(kWave);
  for (const MethodChoice& method : kPairs) {
    for (const double tolerance : {1e-4, 1e-7}) {
      const auto result = Solve(space,
                                {.tableau = TableauFor(method),
                                 .control = ErrorControl{.rtol = tolerance, .atol = tolerance}},
                                RowMatrix::Of({{1.0}}));
      const double error = std::abs(result.state.row(0)[0] - std::exp(std::sin(1.0)));
      EXPECT_LT(error, 10 * tolerance) << NameOf(method.method).name;
      EXPECT_GT(error, 1e-6 * tolerance) << NameOf(method.method).name;
    }
  }
}

TEST(Solve, InPiecesIsTheSameSolve) {
  const RowField field = [](int64_t row, double s, std::span<const double> z,
                            std::span<double> dz) {
    dz[0] = z[1];
    dz[1] = (1.0 + static_cast<double>(row)) * (1 - z[0] * z[0]) * z[1] - z[0] + std::sin(s);
  };
  const RowMatrixSpace space(field);
  const RowMatrix z0 = RowMatrix::Of({{2.0, 0.0}, {1.0, 1.0}, {0.5, -3.0}});
  std::vector<Problem> all = {
      {.tableau = kRk4Tableau, .control = FixedSteps{.steps = 37}, .save_at = {0.31, 0.5, 1.0}},
      {.tableau = kDopri5Tableau, .control = ErrorControl{}, .s1 = 5.0, .save_at = {0.3, 4.0}},
      {.tableau = kBosh3Tableau, .control = ErrorControl{}, .s1 = 5.0, .save_at = {0.3, 4.0}}};
  for (const Problem& options : all) {
    const auto whole = Solve(space, options, z0);
    BatchSolver<RowMatrixSpace> solver(&space, OptionsOf(options));
    Admit(solver, space, options.control, z0);
    EXPECT_FALSE(solver.Advance(0));
    int64_t pieces = 0;
    while (!solver.Advance(1)) ++pieces;
    EXPECT_GT(pieces, 10);
    const auto piecewise = InOrder(space, solver.TakeFinished());
    EXPECT_EQ(piecewise.state.values, whole.state.values);
    EXPECT_EQ(piecewise.counts, whole.counts);
    for (size_t k = 0; k < options.save_at.size(); ++k) {
      EXPECT_EQ(piecewise.saved[k].values, whole.saved[k].values);
    }
  }
}

TEST(Solve, ABatchOfNoRowsIsDone) {
  const RowMatrixSpace space(kWave);
  BatchSolver<RowMatrixSpace> solver(
      &space, {.tableau = kDopri5Tableau, .stepping = Stepping::kErrorControlled});
  Admit(solver, space, ErrorControl{}, RowMatrix{.dims = 2});
  EXPECT_TRUE(solver.done());
  EXPECT_TRUE(solver.Advance(1));
  EXPECT_TRUE(solver.TakeFinished().empty());
}

// AfterStep of the space must be called once a step, whatever else is asked.
class CountingSpace : public RowMatrixSpace {
 public:
  using RowMatrixSpace::RowMatrixSpace;
  void AfterStep(RowMatrix& z) const { z.row(0)[1] += 1.0; }
};

TEST(FixedSolve, TheSpaceHearsOfEveryStep) {
  const CountingSpace space([](int64_t, double, std::span<const double> z, std::span<double> dz) {
    dz[0] = z[0];
    dz[1] = 0.0;
  });
  const auto result = Solve(
      space,
      {.tableau = kRk4Tableau, .control = FixedSteps{.steps = 6}, .save_at = {0.1, 0.5, 0.95}},
      RowMatrix::Of({{1.0, 0.0}}));
  EXPECT_EQ(result.state.row(0)[1], 6.0);
}

TEST(ValidateSolve, SaysWhatIsWrong) {
  const auto message = [](const SolveOptions& options) {
    const absl::Status status = ValidateSolve(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const SolveOptions good = {.tableau = kDopri5Tableau, .stepping = Stepping::kErrorControlled};
  EXPECT_TRUE(ValidateSolve(good).ok());
  const auto with = [&](auto change) {
    SolveOptions options = good;
    change(options);
    return message(options);
  };
  EXPECT_NE(with([](auto& o) { o.s1 = -1.0; }).find("[0, -1] runs backwards"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.s0 = std::nan(""); }).find("finite"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.save_at = {0.5, 0.5}; }).find("save_at 0.5"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.save_at = {1.5}; }).find("save_at 1.5"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.save_at = {std::nan("")}; }).find("save_at"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.tableau = kRk4Tableau; }).find("rk4"), std::string::npos);
  EXPECT_NE(with([](auto& o) { o.hypersolved = true; }).find("no correction"), std::string::npos);
}

}  // namespace
}  // namespace hyperserve
