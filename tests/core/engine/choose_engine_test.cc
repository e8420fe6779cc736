#include "core/engine/choose_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

absl::Status OnlyTierFast(const BatchSpec& spec, int64_t) {
  if (spec.tier == Tier::kFast) return absl::OkStatus();
  return absl::UnimplementedError("it knows tier fast only");
}
absl::Status FewRows(const BatchSpec&, int64_t rows) {
  if (rows <= 8) return absl::OkStatus();
  return absl::UnimplementedError("8 rows are its most");
}

class ChooseEngineTest : public testing::Test {
 protected:
  BatchSpec Flow() const {
    return {.model = flow_, .method = {Method::kRk4}, .entry = Entry::kState};
  }
  BatchSpec With(const std::function<void(BatchSpec&)>& change) const {
    BatchSpec spec = Flow();
    change(spec);
    return spec;
  }

  const std::shared_ptr<const Model> flow_ = fixture::RandomModel(fixture::FlowSpec(), 1);
  const std::shared_ptr<const Model> images_ = fixture::RandomModel(fixture::ImageSpec(), 1);
  const std::shared_ptr<const Hypersolver> correction_ =
      fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *flow_, 2);
};

TEST_F(ChooseEngineTest, TheFirstThatSupportsTheSpec) {
  const EngineKind fused{"fused", OnlyTierFast}, graph{"graph", FewRows},
      readable{"readable", ReadableSupports};
  const BatchSpec exact = Flow(), fast = With([](auto&s) { s.tier = Tier::kFast; });
  struct Case {
    const BatchSpec& spec;
    int64_t rows;
    EngineKinds device;
    const char* engine;
    const char* why;
  };
  const Case cases[] = {
      {exact, 1, {readable}, "readable", "the first choice of this device"},
      {exact, 1, {fused, readable}, "readable", "not fused: it knows tier fast only"},
      {fast, 1, {fused, readable}, "fused", "the first choice of this device"},
      {exact, 8, {fused, graph, readable}, "graph", "not fused: it knows tier fast only"},
      {exact,
       9,
       {fused, graph, readable},
       "readable",
       "not fused: it knows tier fast only; not graph: 8 rows are its most"},
      {fast, 9, {graph, fused}, "fused", "not graph: 8 rows are its most"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(ChooseEngine(one.spec, one.rows, one.device).value(),
              (EngineChoice{.engine = one.engine, .why = one.why}));
  }
}

TEST_F(ChooseEngineTest, NoneThatSupportsIt) {
  const BatchSpec fast = With([](auto& s) { s.tier = Tier::kFast; });
  const EngineKinds device = {{"graph", FewRows}, {"readable", ReadableSupports}};
  const absl::Status status = ChooseEngine(fast, 9, device).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "not graph: 8 rows are its most; not readable: its tiers are exact and double; tier "
            "fast is that of the fused engine, on GPUs");
  EXPECT_EQ(ChooseEngine(Flow(), 1, {}).status().code(), absl::StatusCode::kUnimplemented);
}

// A fault is no reason to take the next engine: it would hide it.
TEST_F(ChooseEngineTest, AFaultOfTheDeviceEndsTheChoice) {
  const auto broken = [](const BatchSpec&, int64_t) {
    return absl::InternalError("the device does not answer");
  };
  const EngineKinds device = {{"broken", broken}, {"readable", ReadableSupports}};
  EXPECT_EQ(ChooseEngine(Flow(), 1, device).status(),
            absl::InternalError("the device does not answer"));
}

TEST_F(ChooseEngineTest, WhatIsWrongForEveryEngine) {
  const auto refused = [&](const BatchSpec& spec, const char* message) {
    const EngineKinds device = {{"readable", ReadableSupports}};
    const absl::Status status = ChooseEngine(spec, 1, device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  refused({}, "without a model");
  refused(With([](auto& s) { s.stepping = Stepping::kErrorControlled; }), "rk4");
  refused(With([](auto& s) { s.dtype = Dtype::kI64; }), "I64");
  refused(With([](auto& s) { s.dtype = Dtype::kU8; }), "U8");
  refused(With([](auto& s) {
            s.entry = Entry::kInput;
            s.dtype = Dtype::kF64;
          }),
          "F64");
  refused(With([](auto& s) { s.want_outputs = true; }), "no outputs");
  refused(With([](auto& s) { s.span = {1.0, 0.5}; }), "span");
  refused(With([](auto& s) { s.save_at = {0.5, 0.5}; }), "save_at");
  refused(With([&](auto& s) {
            s.method = {Method::kEuler};
            s.correction = correction_;
          }),
          "slope_2");
  refused(With([&](auto& s) {
            s.method = {Method::kHeun};
            s.correction = correction_;
            s.log_density = LogDensity::kDivergence;
          }),
          "hypersolved");
  refused(With([](auto& s) {
            s.method = {Method::kDopri5};
            s.stepping = Stepping::kErrorControlled;
            s.log_density = LogDensity::kStepMap;
          }),
          "fixed plan");
  refused({.model = images_, .entry = Entry::kNoise}, "noise");
  refused({.model = images_, .direction = Direction::kDataToNoise}, "forward only");
  refused({.model = images_, .log_density = LogDensity::kStepMap}, "only flows");
}

}  // namespace
}  // namespace hyperserve
