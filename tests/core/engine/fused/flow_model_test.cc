#include "core/engine/fused/flow_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/fused/fused_flows.h"
#include "core/io/tensor.h"
#include "core/kernels/flow/flow_fit.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

const Layer kActivations[] = {{SoftplusLayer{}}, {TanhLayer{}},
                              {SiluLayer{}},     {ReluLayer{}},
                              {PreluLayer{}},    {LeakyReluLayer{.negative_slope = 0.25}}};

// The plain data say the same as the model: their twin, in double, and the readable engine in tier
// double differ by rounding alone.
TEST(FlowModelTest, TheTwinSolvesAsTheReadableEngine) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  for (const Layer& activation : kActivations) {
    for (const int64_t dimensions : {1, 2, 3}) {
      const auto model = fixture::RandomModel(fixture::FusedFlowSpec(activation, dimensions), 1);
      const auto correction =
          fixture::RandomHypersolver(fixture::FusedCorrectionSpec(dimensions), *model, 2);
      const HostTensor rows = NormalRows(3, {dimensions}, 5);
      for (const Direction direction :
           {Direction::kForward, Direction::kDataToNoise, Direction::kNoiseToData}) {
        const bool against = direction == Direction::kNoiseToData;
        const PlannedSolve solve{
            .model = model,
            .correction = against ? correction : nullptr,
            .plan = against ? Hypersolved(Method::kHeun, 3) : Fixed(Method::kRk4, 2),
            .tier = Tier::kDouble,
            .entry = Entry::kState,
            .direction = direction};
        const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
        const kernels::FlowModel flow = FlowModelOf(*model, solve.correction.get()).value();
        EXPECT_EQ(kernels::FlowMisfit(flow), "");
        const kernels::FlowPlan plan = FlowPlanOf(SpecOf(solve), FixedSteps{against ? 3 : 2});
        EXPECT_EQ(plan.against, against);
        const size_t elements = static_cast<size_t>(dimensions);
        for (size_t row = 0; row < 3; ++row) {
          const std::vector<double> found =
              kernels::TwinSolve(flow, plan, rows.as<double>().subspan(row * elements, elements));
          for (size_t i = 0; i < elements; ++i) {
            const double wanted = expected.state.as<double>()[row * elements + i];
            EXPECT_NEAR(found[i], wanted, 1e-12 * (1 + std::abs(wanted)))
                << LayerName(activation) << " " << DirectionName(direction);
          }
        }
      }
    }
  }
}

TEST(FlowModelTest, TheTwinSolvesByTablesAsTheReadableEngine) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto model = fixture::RandomModel(fixture::FusedFlowSpec({TanhLayer{}}), 1);
  const HostTensor rows = NormalRows(3, {2}, 5);
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FusedTablesSpec(*model, kind), *model, 3);
    for (const TableSpec& table : learned->spec().tables) {
      const PlannedSolve solve{.model = model,
                               .correction = learned,
                               .plan = Hypersolved(Method::kLearned, table.evaluations),
                               .tier = Tier::kDouble,
                               .entry = Entry::kState,
                               .direction = Direction::kNoiseToData};
      const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
      const kernels::FlowModel flow = FlowModelOf(*model, learned.get(), table.evaluations).value();
      EXPECT_EQ(kernels::FlowMisfit(flow), "");
      const kernels::FlowPlan plan = FlowPlanOf(SpecOf(solve), FixedSteps{table.evaluations});
      for (size_t row = 0; row < 3; ++row) {
        const std::vector<double> found =
            kernels::TwinSolve(flow, plan, rows.as<double>().subspan(2 * row, 2));
        for (size_t i = 0; i < 2; ++i) {
          // The coefficients are rounded to float.
          EXPECT_NEAR(found[i], expected.state.as<double>()[2 * row + i], 1e-6);
        }
      }
    }
  }
}

TEST(FlowModelTest, LayersThatAreNoneOfTheKernels) {
  const auto refused = [](const LayerList& field, const char* reason) {
    ModelSpec spec = fixture::FusedFlowSpec({TanhLayer{}});
    spec.field = field;
    const auto flow = FlowModelOf(*fixture::RandomModel(spec, 1), nullptr);
    EXPECT_EQ(flow.status().code(), absl::StatusCode::kUnimplemented) << reason;
    EXPECT_THAT(std::string(flow.status().message()), HasSubstr(reason));
  };
  const Layer linear = {LinearLayer{.in = 2, .out = 2}}, tanh = {TanhLayer{}};
  refused({linear, {GeluLayer{}}, linear}, "field.1.gelu");
  refused({linear, {SoftplusLayer{.beta = 2.0}}, linear}, "field.1.softplus");
  refused({linear, tanh, linear, {SiluLayer{}}, linear}, "field.3.silu");
  refused({linear, linear}, "field.1.linear");
  refused({linear, tanh, tanh, linear}, "field.2.tanh");
  refused({linear, tanh}, "ends in an activation");
  refused({linear, tanh, {DepthCatLayer{}}, {LinearLayer{.in = 3, .out = 2}}}, "field.2.depth_cat");
  refused({{LinearLayer{.in = 2, .out = 200}}, tanh, {LinearLayer{.in = 200, .out = 2}}}, "200");
}

}  // namespace
}  // namespace hyperserve
