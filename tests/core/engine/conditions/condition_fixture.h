// Conditional flows on an engine, their rows and conditions, and what a row must be alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/condition_knots.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {

class ConditionTest : public EngineTest {
 protected:
  std::shared_ptr<const Hypersolver> Tables() const {
    return fixture::RandomHypersolver(fixture::FlowTablesSpec(*model_, Coefficients::kScalar),
                                      *model_, 3);
  }

  PlannedSolve Of(StepPlan plan, std::shared_ptr<const Hypersolver> correction = nullptr,
                  LogDensity density = LogDensity::kNone) const {
    return {.model = model_,
            .correction = std::move(correction),
            .plan = plan,
            .entry = Entry::kState,
            .direction = Direction::kNoiseToData,
            .log_density = density};
  }

  std::vector<PlannedSolve> Solves() const {
    const auto correction =
        fixture::RandomHypersolver(fixture::ConditionalCorrectionSpec(), *model_, 2);
    PlannedSolve saves = Of(Dopri5(1e-4));
    saves.save_at = {0.25, 0.5};
    PlannedSolve double_tier = Of(Fixed(Method::kRk4, 2), nullptr, LogDensity::kStepMap);
    double_tier.tier = Tier::kDouble;
    return {Of(Fixed(Method::kEuler, 4)),
            Of(Dopri5(1e-4), nullptr, LogDensity::kDivergence),
            Of(Fixed(Method::kAb2, 5)),
            Of(Hypersolved(Method::kHeun, 2), correction, LogDensity::kStepMap),
            Of(Hypersolved(Method::kLearned, 1), Tables()),
            Of(Hypersolved(Method::kLearned, 3), Tables(), LogDensity::kStepMap),
            saves,
            double_tier};
  }

  void ExpectRowEqual(const HostTensor& among, int64_t row, const HostTensor& alone) {
    ASSERT_EQ(among.shape.empty(), alone.shape.empty());
    if (among.shape.empty()) return;
    if (on_cpu()) {
      EXPECT_EQ(RowBytes(among, row), RowBytes(alone, 0));
    }
    const int64_t width = alone.elements();
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_NEAR(Number(among, row * width + i), Number(alone, i), 1e-3);
    }
  }

  // On a GPU another bucket, or another run, rounds differently: here float32 and float64 differ by
  // a step under error control, and so may they.
  void ExpectSameCosts(const StepPlan& plan, const BatchResult& a, int64_t row_of_a,
                       const BatchResult& b, int64_t row_of_b) const {
    const auto i = static_cast<size_t>(row_of_a), j = static_cast<size_t>(row_of_b);
    if (on_cpu() || std::holds_alternative<FixedPlan>(plan)) {
      EXPECT_EQ(a.nfe[i], b.nfe[j]);
      EXPECT_EQ(a.macs[i], b.macs[j]);
    } else {
      EXPECT_NEAR(a.nfe[i], b.nfe[j], StepEvaluations({Method::kDopri5}));
    }
  }

  // The rows together, with conditions and guidance for each, and each row alone.
  void ExpectALoop(PlannedSolve solve) {
    SCOPED_TRACE(
        std::visit([](const auto& plan) { return PrintPlan({.choice = plan}); }, solve.plan));
    const TensorView conditions = solve.condition, guidance = solve.guidance;
    const BatchResult batch = Run(solve, rows_);
    for (int64_t row = 0; row < 7; ++row) {
      solve.condition = RowsOf(conditions, row, 1);
      if (!guidance.shape.empty()) solve.guidance = RowsOf(guidance, row, 1);
      const BatchResult alone = Run(solve, HostTensor::CopyOf(RowsOf(View(rows_), row, 1)));
      ExpectRowEqual(batch.state, row, alone.state);
      ExpectRowEqual(batch.saved, row, alone.saved);
      ExpectRowEqual(batch.log_density, row, alone.log_density);
      ExpectSameCosts(solve.plan, batch, row, alone, 0);
    }
  }

  const std::shared_ptr<const Model> model_ =
      fixture::RandomModel(fixture::ConditionalFlowSpec(), 1);
  const HostTensor rows_ = NormalRows(7, {2}, 5), conditions_ = NormalRows(7, {3}, 6);
};

}  // namespace hyperserve
