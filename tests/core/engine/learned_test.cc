// Learned solvers on an engine: tables that hold classical plans must give the classical answers,
// and files that do not fit are refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Coefficients kKinds[] = {Coefficients::kScalar, Coefficients::kChannel,
                                   Coefficients::kMap};

// One classical plan for each number of evaluations.
std::vector<std::vector<FixedPlan>> PlanSets() {
  return {{Fixed(Method::kEuler, 1), Fixed(Method::kMidpoint, 1), Fixed(Method::kRk3, 1),
           Fixed(Method::kRk4, 1), Fixed(Method::kAb2, 5)},
          {Fixed(Method::kHeun, 1), Fixed(Method::kEuler, 3), Fixed(Method::kRk438, 1)},
          {Fixed(Method::kRalston, 1), Fixed(Method::kAb2, 2), Fixed(Method::kMidpoint, 2)}};
}

class LearnedTest : public EngineTest {
 protected:
  static std::shared_ptr<const Hypersolver> Learned(const std::vector<FixedPlan>& plans,
                                                    Coefficients kind, const Model& model,
                                                    Direction direction) {
    const auto bytes = fixture::LearnedFrom(plans, kind, model, direction);
    return Hypersolver::FromBytes(bytes.hypersolver_json, bytes.weights, model).value();
  }

  // Solves the same rows by both.
  void ExpectSame(PlannedSolve solve, const HostTensor& rows, LogDensity classical_density) {
    for (const auto& plans : PlanSets()) {
      for (const Coefficients kind : kKinds) {
        const auto learned = Learned(plans, kind, *solve.model, solve.direction);
        for (const FixedPlan& plan : plans) {
          SCOPED_TRACE(PrintPlan({.choice = plan}));
          PlannedSolve classical = solve, table = solve;
          classical.plan = plan;
          classical.log_density = classical_density;
          table.correction = learned;
          table.plan = Hypersolved(Method::kLearned, PlanEvaluations(plan));
          const BatchResult wanted = Run(classical, rows), found = Run(table, rows);
          ASSERT_EQ(found.status, wanted.status);
          EXPECT_EQ(found.nfe, wanted.nfe);
          for (int64_t i = 0; i < wanted.state.elements(); ++i) {
            ASSERT_NEAR(Number(found.state, i), Number(wanted.state, i), 1e-12);
          }
          for (int64_t i = 0; i < wanted.outputs.elements(); ++i) {
            ASSERT_NEAR(Number(found.outputs, i), Number(wanted.outputs, i), 1e-12);
          }
          const int64_t macs = found.macs[0] - wanted.macs[0];
          EXPECT_EQ(macs > 0, kind == Coefficients::kMap) << "maps cost, numbers do not";
        }
      }
    }
  }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const std::shared_ptr<const Model> images_ = fixture::RandomModel(fixture::ImageSpec(), 1);
};

TEST_P(LearnedTest, ClassicalPlansOfAFlowAsTables) {
  for (const Direction direction : {Direction::kNoiseToData, Direction::kDataToNoise}) {
    ExpectSame(
        {.model = flow_, .tier = Tier::kDouble, .entry = Entry::kState, .direction = direction},
        NormalRows(5, {2}, 1), LogDensity::kNone);
  }
}

TEST_P(LearnedTest, ClassicalPlansOfImagesAsTables) {
  ExpectSame(
      {.model = images_, .tier = Tier::kDouble, .entry = Entry::kState, .want_outputs = true},
      NormalRows(3, {8, 12, 12}, 1), LogDensity::kNone);
}

// The log-density of the discrete map, by differences of the solve itself.
TEST_P(LearnedTest, TheDensityIsThatOfTheDiscreteMap) {
  for (const Coefficients kind : kKinds) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FlowTablesSpec(*flow_, kind), *flow_, 3);
    for (const int n : learned->spec().steps) {
      PlannedSolve solve{.model = flow_,
                         .correction = learned,
                         .plan = Hypersolved(Method::kLearned, n),
                         .tier = Tier::kDouble,
                         .entry = Entry::kState,
                         .direction = Direction::kNoiseToData};
      constexpr double kStep = 1e-6;
      HostTensor rows = HostTensor::Zeros(Dtype::kF64, {5, 2});
      const double x = 0.4, y = -0.7;
      const double starts[] = {x, y, x + kStep, y, x - kStep, y, x, y + kStep, x, y - kStep};
      std::copy(std::begin(starts), std::end(starts), rows.as<double>().begin());
      const HostTensor end = Run(solve, rows).state;
      const auto slope = [&](int64_t plus, int64_t minus, int64_t d) {
        return (Number(end, 2 * plus + d) - Number(end, 2 * minus + d)) / (2 * kStep);
      };
      const double det = slope(1, 2, 0) * slope(3, 4, 1) - slope(1, 2, 1) * slope(3, 4, 0);
      const double normal = -0.5 * (x * x + y * y) - std::log(2 * M_PI);
      solve.log_density = LogDensity::kStepMap;
      EXPECT_NEAR(Number(Run(solve, rows).log_density, 0), normal - std::log(std::abs(det)), 1e-6)
          << "n = " << n;
    }
  }
}

// The fixture's distance is that from one step of euler.
TEST_P(LearnedTest, DistancesComeFromTheSameSlopes) {
  for (const auto& model : {flow_, images_}) {
    const Shape& shape = model->state_shape();
    const Direction direction = model == flow_ ? Direction::kNoiseToData : Direction::kForward;
    const HostTensor rows = NormalRows(5, shape, 3);
    PlannedSolve solve{.model = model,
                       .plan = Fixed(Method::kEuler, 1),
                       .tier = Tier::kDouble,
                       .entry = Entry::kState,
                       .direction = direction};
    const std::vector<double> coarse = AsDoubles(Run(solve, rows).state.view());
    for (const Coefficients kind : kKinds) {
      solve.correction = Learned({Fixed(Method::kMidpoint, 2)}, kind, *model, direction);
      solve.plan = Hypersolved(Method::kLearned, 4);
      solve.want_distance = false;
      const BatchResult plain = Run(solve, rows);
      EXPECT_TRUE(plain.distance.empty());
      solve.want_distance = true;
      const BatchResult found = Run(solve, rows);
      EXPECT_EQ(found.state.bytes, plain.state.bytes) << "a distance changes no bit";
      EXPECT_EQ(found.macs[0] - plain.macs[0], solve.correction->table(4)->distance_macs);
      EXPECT_GE(solve.correction->table(4)->distance_macs, 6 * model->state_elements());
      ASSERT_EQ(found.distance.size(), 5u);
      const std::vector<double> end = AsDoubles(found.state.view());
      const auto width = static_cast<size_t>(model->state_elements());
      for (size_t row = 0; row < 5; ++row) {
        double squares = 0, size = 0;
        for (size_t i = row * width; i < (row + 1) * width; ++i) {
          squares += (end[i] - coarse[i]) * (end[i] - coarse[i]);
          size += end[i] * end[i];
        }
        EXPECT_NEAR(found.distance[row], std::sqrt(squares / size), 1e-12);
        const HostTensor one = HostTensor::CopyOf(RowsOf(rows.view(), row, 1));
        if (!on_cpu()) continue;
        EXPECT_EQ(Run(solve, one).distance[0], found.distance[row]);
      }
    }
  }
}

TEST_P(LearnedTest, OnlyTablesWithAReadoutGiveDistances) {
  const HostTensor rows = NormalRows(2, {2}, 1);
  PlannedSolve solve{.model = flow_,
                     .correction = fixture::RandomHypersolver(
                         fixture::FlowTablesSpec(*flow_, Coefficients::kMap), *flow_, 3),
                     .plan = Hypersolved(Method::kLearned, 3),
                     .entry = Entry::kState,
                     .direction = Direction::kNoiseToData,
                     .want_distance = true};
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("no distance readout of 3"));
  solve.correction = nullptr;
  solve.plan = Fixed(Method::kMidpoint, 1);
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("only learned solvers"));
}

TEST_P(LearnedTest, WhatDoesNotFitIsRefusedInWords) {
  const auto learned =
      Learned({Fixed(Method::kMidpoint, 2)}, Coefficients::kMap, *flow_, Direction::kNoiseToData);
  PlannedSolve solve{.model = flow_,
                     .correction = learned,
                     .plan = Hypersolved(Method::kLearned, 3),
                     .entry = Entry::kState,
                     .direction = Direction::kNoiseToData};
  const HostTensor rows = NormalRows(2, {2}, 1);
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("no table of 3 evaluations"));
  solve.plan = Hypersolved(Method::kLearned, 4);
  EXPECT_TRUE(TryRun(solve, rows).ok());
  solve.save_at = {0.5};
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("saves no states"));
  solve.save_at.clear();
  solve.plan = Hypersolved(Method::kHeun, 1);
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("for learned"));
  solve.correction = nullptr;
  solve.plan = Hypersolved(Method::kLearned, 4);
  EXPECT_THAT(TryRun(solve, rows).status().message(), HasSubstr("without a correction"));

  const FixedPlan four = Hypersolved(Method::kLearned, 4), three = Hypersolved(Method::kLearned, 3);
  const Direction to_data = Direction::kNoiseToData;
  EXPECT_TRUE(CheckApplies(*learned, four, to_data, {0.0, 1.0}).ok());
  EXPECT_THAT(CheckApplies(*learned, three, to_data, {0.0, 1.0}).message(), HasSubstr("it has 4"));
  EXPECT_THAT(CheckApplies(*learned, four, to_data, {0.0, 0.5}).message(), HasSubstr("span"));
  EXPECT_FALSE(CheckApplies(*learned, four, Direction::kDataToNoise, {0.0, 1.0}).ok());
}

INSTANTIATE_TEST_SUITE_P(Devices, LearnedTest, testing::ValuesIn(DeviceNames()), DeviceTestName);

}  // namespace
}  // namespace hyperserve
