// Which specs the fused engine takes, and that a flow is packed once. No device.
#include "core/engine/fused/fused_flows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/fused_flow.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/layer.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/testing/flow_specs.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

// Has room for fixed plans of up to four stages.
class SmallFlow final : public FusedFlow {
 public:
  bool Takes(const kernels::FlowTask& task) const override {
    const auto* fixed = std::get_if<kernels::FlowPlan>(&task);
    return fixed == nullptr || fixed->tableau.solution_stages() <= 4;
  }
  int64_t RowsAtOnce(const kernels::FlowAdaptivePlan&) const override { return 1; }
  void Solve(const kernels::FlowTask&, const kernels::FlowRows&) const override {}
};

class FusedFlowsTest : public testing::Test {
 protected:
  static std::shared_ptr<const Model> FlowWith(const Layer& activation) {
    return fixture::RandomModel(fixture::FusedFlowSpec(activation), 1);
  }
  BatchSpec Fast() const {
    return {.model = model_,
            .method = {Method::kHeun},
            .tier = Tier::kFast,
            .entry = Entry::kNoise,
            .direction = Direction::kNoiseToData};
  }

  struct Case {
    std::function<void(BatchSpec&)> change;
    const char* engine;  // null: none
    const char* why;
  };

  // As a CUDA device lists its engines.
  void Expect(std::span<const Case> cases) {
    const EngineKinds device = {
        {"fused", [this](const BatchSpec& spec, int64_t) { return flows_.Supports(spec); }},
        {"readable", ReadableSupports}};
    for (const Case& one : cases) {
      BatchSpec spec = Fast();
      one.change(spec);
      const absl::StatusOr<EngineChoice> choice = ChooseEngine(spec, 1, device);
      if (one.engine == nullptr) {
        EXPECT_EQ(choice.status().code(), absl::StatusCode::kUnimplemented) << one.why;
        EXPECT_THAT(std::string(choice.status().message()), HasSubstr(one.why));
        EXPECT_THAT(std::string(choice.status().message()), HasSubstr("not readable"));
      } else {
        ASSERT_TRUE(choice.ok()) << choice.status();
        EXPECT_EQ(choice->engine, one.engine) << one.why;
        EXPECT_THAT(choice->why, HasSubstr(one.why));
      }
    }
  }

  const std::shared_ptr<const Model> model_ = FlowWith({TanhLayer{}});
  int made_ = 0;
  FusedFlows flows_{[this](const kernels::FlowModel&, kernels::FlowPrecision) {
    ++made_;
    return std::make_shared<const SmallFlow>();
  }};
};

TEST_F(FusedFlowsTest, TheChoiceOfTheEngine) {
  const Case cases[] = {
      {[](BatchSpec&) {}, "fused", "first choice"},
      {[&](BatchSpec& spec) {
         spec.correction = fixture::RandomHypersolver(fixture::FusedCorrectionSpec(), *model_, 2);
       },
       "fused", "first choice"},
      {[](BatchSpec& spec) { spec.tier = Tier::kExact; }, "readable", "tier fast only"},
      {[](BatchSpec& spec) { spec.tier = Tier::kDouble; }, "readable", "tier fast only"},
      {[](BatchSpec& spec) { spec.method = {Method::kDopri5}; }, nullptr, "stages of dopri5"},
      {[](BatchSpec& spec) { spec.save_at = {0.5}; }, nullptr, "no states on the way"},
      {[](BatchSpec& spec) { spec.log_density = LogDensity::kStepMap; }, "fused", "first choice"},
      {[](BatchSpec& spec) {
         spec.model = fixture::RandomModel(fixture::FusedFlowSpec({TanhLayer{}}, 3), 1);
         spec.log_density = LogDensity::kDivergence;
       },
       nullptr, "at most 2 dimensions, not of 3"},
      {[](BatchSpec& spec) {
         spec.span = {0.0, 0.5};
       },
       nullptr, "around 0.5"},
      {[](BatchSpec& spec) {
         spec.span = {0.25, 0.75};
       },
       "fused", "first choice"},
      {[](BatchSpec& spec) {
         spec.span = {0.0, 0.5};
         spec.direction = Direction::kDataToNoise;
       },
       "fused", "first choice"},
      {[](BatchSpec& spec) { spec.model = FlowWith({GeluLayer{}}); }, nullptr, "gelu"},
      {[](BatchSpec& spec) {
         spec.model = fixture::RandomModel(fixture::ImageSpec(), 1);
         spec.entry = Entry::kInput;
         spec.direction = Direction::kForward;
       },
       nullptr, "flows only"},
  };
  Expect(cases);
}

TEST_F(FusedFlowsTest, Tables) {
  const Case cases[] = {
      {[&](BatchSpec& spec) {
         spec.method = {Method::kLearned};
         spec.correction = fixture::RandomHypersolver(
             fixture::FusedTablesSpec(*model_, Coefficients::kMap), *model_, 3);
       },
       "fused", "first choice"},
      {[&](BatchSpec& spec) {
         spec.method = {Method::kLearned};
         spec.correction = fixture::RandomHypersolver(
             fixture::FusedTablesSpec(*model_, Coefficients::kMap), *model_, 3);
         spec.log_density = LogDensity::kStepMap;
       },
       "fused", "first choice"},
      {[](BatchSpec& spec) { spec.method = {Method::kAb2}; }, nullptr, "learned tables only"},
  };
  Expect(cases);
  EXPECT_GT(made_, 2);  // one for each table
}

TEST_F(FusedFlowsTest, ErrorControl) {
  const Case cases[] = {
      {[](BatchSpec& spec) {
         spec.method = {Method::kDopri5};
         spec.stepping = Stepping::kErrorControlled;
       },
       nullptr, "tier exact only"},
      {[](BatchSpec& spec) {
         spec.tier = Tier::kExact;
         spec.method = {Method::kDopri5};
         spec.stepping = Stepping::kErrorControlled;
       },
       "fused", "first choice"},
      {[](BatchSpec& spec) {
         spec.tier = Tier::kExact;
         spec.method = {Method::kHeunEuler};
         spec.stepping = Stepping::kErrorControlled;
       },
       "readable", "heun_euler is none"},
      {[](BatchSpec& spec) {
         spec.tier = Tier::kExact;
         spec.method = {Method::kDopri5};
         spec.stepping = Stepping::kErrorControlled;
         spec.log_density = LogDensity::kDivergence;
       },
       "readable", "no log-density"},
  };
  Expect(cases);
}

TEST_F(FusedFlowsTest, AFlowIsPackedOnce) {
  BatchSpec spec = Fast();
  const auto first = flows_.Find(spec).value();
  spec.method = {Method::kRk4};
  EXPECT_EQ(flows_.Find(spec).value(), first);
  EXPECT_EQ(made_, 1);
  BatchSpec exact = Fast();
  exact.tier = Tier::kExact;
  EXPECT_NE(flows_.Find(exact).value(), first);
  EXPECT_EQ(made_, 2);
  spec.correction = fixture::RandomHypersolver(fixture::FusedCorrectionSpec(), *model_, 2);
  EXPECT_NE(flows_.Find(spec).value(), first);
  EXPECT_EQ(made_, 3);
  BatchSpec misfit = Fast();
  misfit.model = FlowWith({GeluLayer{}});
  EXPECT_EQ(flows_.Find(misfit).status(), flows_.Find(misfit).status());
  EXPECT_EQ(made_, 3);
}

TEST_F(FusedFlowsTest, AFlowLeavesAfterItsModel) {
  BatchSpec spec = Fast();
  spec.model = FlowWith({TanhLayer{}});
  const std::weak_ptr<const FusedFlow> packed = flows_.Find(spec).value();
  spec.model = nullptr;
  EXPECT_FALSE(packed.expired());
  spec.model = FlowWith({SiluLayer{}});
  EXPECT_TRUE(flows_.Find(spec).ok());
  EXPECT_TRUE(packed.expired());
}

}  // namespace
}  // namespace hyperserve
