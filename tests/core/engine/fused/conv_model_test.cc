#include "core/engine/fused/conv_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/engine/fused/fused_convs.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_fit.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/conv_specs.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

kernels::ConvPlan PlanOf(const PlannedSolve& solve, int steps) {
  return std::get<kernels::ConvPlan>(ConvTaskOf(SpecOf(solve), FixedSteps{.steps = steps}));
}

// The plain data say the same as the model: their twin, in double, and the readable engine in tier
// double differ by rounding alone.
TEST(ConvModelTest, TheTwinSolvesAsTheReadableEngine) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const Layer activations[] = {{SoftplusLayer{}}, {TanhLayer{}},
                               {SiluLayer{}},     {ReluLayer{}},
                               {PreluLayer{}},    {LeakyReluLayer{.negative_slope = 0.25}}};
  for (const Layer& activation : activations) {
    const auto model = fixture::RandomModel(fixture::FusedImageSpec(activation), 1);
    const auto correction =
        fixture::RandomHypersolver(fixture::FusedImageCorrectionSpec(), *model, 2);
    const HostTensor rows = NormalRows(1, model->state_shape(), 5);
    for (const auto& plan : {Hypersolved(Method::kHeun, 2), Fixed(Method::kRk4, 1)}) {
      const PlannedSolve solve{.model = model,
                               .correction = plan.hypersolved ? correction : nullptr,
                               .plan = plan,
                               .tier = Tier::kDouble,
                               .entry = Entry::kState};
      const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
      const kernels::ConvModel conv = ConvModelOf(*model, solve.correction.get()).value();
      const std::vector<double> found =
          kernels::TwinConvSolve(conv, PlanOf(solve, plan.steps), rows.as<double>());
      for (size_t i = 0; i < found.size(); ++i) {
        const double wanted = expected.state.as<double>()[i];
        ASSERT_NEAR(found[i], wanted, 1e-12 * (1 + std::abs(wanted))) << LayerName(activation);
      }
    }
  }
}

// Folded weights are rounded to float.
TEST(ConvModelTest, SeparableConvolutionsBecomeDenseOnes) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto model = fixture::RandomModel(fixture::FusedSeparableSpec(), 1);
  const HostTensor rows = NormalRows(1, model->state_shape(), 5);
  const PlannedSolve solve{.model = model,
                           .plan = Fixed(Method::kRk4, 1),
                           .tier = Tier::kDouble,
                           .entry = Entry::kState};
  const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
  const kernels::ConvModel conv = ConvModelOf(*model, nullptr).value();
  EXPECT_EQ(conv.field.size(), 5u);  // of eight convolutions, three folded into those before them
  const std::vector<double> found =
      kernels::TwinConvSolve(conv, PlanOf(solve, 1), rows.as<double>());
  for (size_t i = 0; i < found.size(); ++i) {
    const double wanted = expected.state.as<double>()[i];
    ASSERT_NEAR(found[i], wanted, 1e-6 * (1 + std::abs(wanted)));
  }
}

// Launches are cut by what the kernel multiplies, not by what the layers say.
TEST(ConvModelTest, MacsAreThoseOfTheDenseLayers) {
  const Shape state = {8, 12, 10};
  const auto plain = fixture::RandomModel(fixture::FusedImageSpec({ReluLayer{}}), 1);
  EXPECT_EQ(FusedConvMacs(plain->spec().field, state), plain->field_macs());
  const LayerList depthwise = {
      {Conv2dLayer{.in = 8, .out = 8, .kernel = 3, .padding = 1, .groups = 8}}};
  EXPECT_EQ(FusedConvMacs(depthwise, state), 8 * 8 * 9 * 12 * 10);
}

TEST(ConvModelTest, TheTwinSolvesByTablesAsTheReadableEngine) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto model = fixture::RandomModel(fixture::FusedImageSpec({SoftplusLayer{}}), 1);
  const HostTensor rows = NormalRows(1, model->state_shape(), 5);
  for (const Coefficients kind :
       {Coefficients::kScalar, Coefficients::kChannel, Coefficients::kMap}) {
    const auto learned =
        fixture::RandomHypersolver(fixture::FusedImageTablesSpec(*model, kind), *model, 3);
    for (const TableSpec& table : learned->spec().tables) {
      const PlannedSolve solve{.model = model,
                               .correction = learned,
                               .plan = Hypersolved(Method::kLearned, table.evaluations),
                               .tier = Tier::kDouble,
                               .entry = Entry::kState};
      const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
      const kernels::ConvModel conv = ConvModelOf(*model, learned.get(), table.evaluations).value();
      const std::vector<double> found =
          kernels::TwinConvSolve(conv, kernels::ConvPlan{}, rows.as<double>());
      for (size_t i = 0; i < found.size(); ++i) {
        // The coefficients are rounded to float.
        ASSERT_NEAR(found[i], expected.state.as<double>()[i], 1e-6) << table.evaluations;
      }
    }
  }
}

// The steps of error control are the same, and so is the end.
TEST(ConvModelTest, TheTwinKeepsTheToleranceAsTheReadableEngineDoes) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const auto model = fixture::RandomModel(fixture::FusedImageSpec({SoftplusLayer{}}), 1);
  const HostTensor rows = NormalRows(1, model->state_shape(), 5);
  for (const double tolerance : {1e-2, 1e-4}) {
    const PlannedSolve solve{.model = model,
                             .correction = nullptr,
                             .plan = Dopri5(tolerance),
                             .tier = Tier::kDouble,
                             .entry = Entry::kState};
    const BatchResult expected = Solve(*runtime, solve, View(rows)).value();
    const auto task = ConvTaskOf(SpecOf(solve), ErrorControl{.rtol = tolerance, .atol = tolerance});
    const kernels::TwinConvEnd end =
        kernels::TwinConvSolve(ConvModelOf(*model, nullptr).value(),
                               std::get<kernels::ConvAdaptivePlan>(task), rows.as<double>());
    EXPECT_EQ(end.evaluations, expected.nfe[0]);
    for (size_t i = 0; i < end.z.size(); ++i) {
      ASSERT_NEAR(end.z[i], expected.state.as<double>()[i], 1e-10);
    }
  }
}

TEST(ConvModelTest, SaysWhatTheKernelDoesNotHave) {
  const auto refusal = [](const ModelSpec& spec) {
    return std::string(ConvModelOf(*fixture::RandomModel(spec, 1), nullptr).status().message());
  };
  ModelSpec spec = fixture::FusedImageSpec({GeluLayer{}});
  EXPECT_THAT(refusal(spec), HasSubstr("field.2.gelu is not a layer of the fused kernel"));
  spec = fixture::FusedImageSpec({SoftplusLayer{.beta = 2.0}});
  EXPECT_THAT(refusal(spec), HasSubstr("field.2.softplus"));
  spec = fixture::FusedImageSpec({ReluLayer{}});
  spec.field = {{Conv2dLayer{.in = 8, .out = 8, .kernel = 5, .padding = 2}}};
  EXPECT_THAT(refusal(spec), HasSubstr("field.0.conv2d"));
  spec.field = {fixture::Conv3x3(8, 80), {ReluLayer{}}, fixture::Conv3x3(80, 8)};
  EXPECT_THAT(refusal(spec), HasSubstr("80 channels"));
  EXPECT_THAT(refusal(fixture::FusedFlowSpec({TanhLayer{}})), HasSubstr("is not an image"));
}

TEST(ConvModelTest, SaysWhichTablesTheKernelDoesNotHave) {
  const auto model = fixture::RandomModel(fixture::FusedImageSpec({SoftplusLayer{}}), 1);
  HypersolverSpec spec = fixture::FusedImageTablesSpec(*model, Coefficients::kScalar);
  spec.tables[0].inputs = {CorrectionInput::kState};
  spec.tables[0].net = {fixture::Conv3x3(8, 8)};  // no readout of the kernel
  const auto learned = fixture::RandomHypersolver(spec, *model, 3);
  EXPECT_THAT(std::string(ConvModelOf(*model, learned.get(), 1).status().message()),
              HasSubstr("table.1.net: the fused kernel has nets of tables only"));
  EXPECT_TRUE(ConvModelOf(*model, learned.get(), 3).ok());
  spec = fixture::FusedImageTablesSpec(*model, Coefficients::kScalar);
  std::get<Conv2dLayer>(spec.tables[1].net[2].kind).out = 65;
  std::get<Conv2dLayer>(spec.tables[1].net[4].kind).in = 65;
  const auto wide = fixture::RandomHypersolver(spec, *model, 3);
  EXPECT_THAT(std::string(ConvModelOf(*model, wide.get(), 2).status().message()),
              HasSubstr("the table's net has a layer of 65 channels; the fused kernel takes"));
}

// The default plans of the models that ship.
TEST(ConvModelTest, TheKernelHasEveryTableThatShips) {
  for (const char* name : {"fashion", "cifar"}) {
    const fixture::Shipped shipped = fixture::ShippedLearned(name);
    EXPECT_EQ(shipped.learned->spec().tables.size(), 6) << name;
    for (const TableSpec& table : shipped.learned->spec().tables) {
      const auto conv = ConvModelOf(*shipped.model, shipped.learned.get(), table.evaluations);
      EXPECT_TRUE(conv.ok()) << name << ", learned:" << table.evaluations << ": " << conv.status();
    }
  }
}

}  // namespace
}  // namespace hyperserve
