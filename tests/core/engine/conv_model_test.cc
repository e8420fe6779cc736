#include "core/engine/fused/conv_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
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
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/conv_specs.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

// The plain data say the same as the model: their twin, in double, and the readable engine in tier
// double differ by rounding alone.
TEST(ConvModelTest, TheTwinSolvesAsTheReadableEngine) {
  const auto runtime = MakeDeviceRuntime("cpu").value();
  const Layer activations[] = {
      {SoftplusLayer{}}, {ReluLayer{}}, {PreluLayer{}}, {LeakyReluLayer{.negative_slope = 0.25}}};
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
          kernels::TwinConvSolve(conv, ConvPlanOf(SpecOf(solve), plan.steps), rows.as<double>());
      for (size_t i = 0; i < found.size(); ++i) {
        const double wanted = expected.state.as<double>()[i];
        ASSERT_NEAR(found[i], wanted, 1e-12 * (1 + std::abs(wanted))) << LayerName(activation);
      }
    }
  }
}

TEST(ConvModelTest, SaysWhatTheKernelDoesNotHave) {
  const auto refusal = [](const ModelSpec& spec) {
    return std::string(ConvModelOf(*fixture::RandomModel(spec, 1), nullptr).status().message());
  };
  ModelSpec spec = fixture::FusedImageSpec({TanhLayer{}});
  EXPECT_THAT(refusal(spec), HasSubstr("field.2.tanh is not a layer of the fused kernel"));
  spec = fixture::FusedImageSpec({SoftplusLayer{.beta = 2.0}});
  EXPECT_THAT(refusal(spec), HasSubstr("field.2.softplus"));
  spec = fixture::FusedImageSpec({ReluLayer{}});
  spec.field = {{Conv2dLayer{.in = 8, .out = 8, .kernel = 5, .padding = 2}}};
  EXPECT_THAT(refusal(spec), HasSubstr("field.0.conv2d"));
  spec.field = {{Conv2dLayer{.in = 8, .out = 8, .kernel = 3, .padding = 1, .groups = 8}}};
  EXPECT_THAT(refusal(spec), HasSubstr("field.0.conv2d"));
  spec.field = {fixture::Conv3x3(8, 80), {ReluLayer{}}, fixture::Conv3x3(80, 8)};
  EXPECT_THAT(refusal(spec), HasSubstr("80 channels"));
  EXPECT_THAT(refusal(fixture::FusedFlowSpec({TanhLayer{}})), HasSubstr("is not an image"));
}

}  // namespace
}  // namespace hyperserve
