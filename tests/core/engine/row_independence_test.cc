// Promise 1: a row's answer does not depend on the rows beside it. On the CPU no bit of it; on CUDA
// no bit of it within one bucket, and no more than rounding between buckets.
#include <gtest/gtest.h>

#include <map>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/engine/readable/row_padding.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "tests/core/engine/engine_fixture.h"
#include "tests/testing/planned_solve.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/random_model.h"

namespace hyperserve {
namespace {

// `row` of easy at place `place` among rows of hard.
HostTensor Among(const HostTensor& easy, int64_t row, HostTensor hard, int64_t place) {
  const size_t size = hard.bytes.size() / static_cast<size_t>(hard.shape[0]);
  std::copy_n(easy.bytes.begin() + static_cast<long>(static_cast<size_t>(row) * size), size,
              hard.bytes.begin() + static_cast<long>(static_cast<size_t>(place) * size));
  return hard;
}

class RowIndependenceTest : public EngineTest {
 protected:
  // All results of one row.
  static std::string Answer(const BatchResult& result, int64_t row) {
    std::string answer = RowBytes(result.state, row);
    for (const HostTensor* part : {&result.outputs, &result.saved, &result.log_density}) {
      if (!part->bytes.empty()) answer += RowBytes(*part, row);
    }
    const size_t i = static_cast<size_t>(row);
    return absl::StrCat(answer, static_cast<int>(result.status[i]), " ", result.nfe[i], " ",
                        result.macs[i]);
  }

  void ExpectIndependent(const PlannedSolve& spec, const Shape& shape) {
    for (const Tier tier : {Tier::kExact, Tier::kDouble}) {
      PlannedSolve with_tier = spec;
      with_tier.tier = tier;
      const HostTensor easy = NormalRows(3, shape, 1, 0.5), hard = NormalRows(64, shape, 2, 2.0);
      for (const int64_t row : {0, 2}) {
        const std::string among =
            Answer(Run(with_tier, Among(easy, row, NormalRows(64, shape, 3, 0.1), 0)), 0);
        for (const int64_t place : {0, 13, 63}) {
          EXPECT_EQ(Answer(Run(with_tier, Among(easy, row, hard, place)), place), among)
              << TierName(tier) << " at " << place;
        }
        for (const int64_t size : {1, 2, 3, 33}) {
          const HostTensor few = Among(easy, row, NormalRows(size, shape, 4, 2.0), size - 1);
          if (on_cpu()) {
            EXPECT_EQ(Answer(Run(with_tier, few), size - 1), among)
                << TierName(tier) << " of " << size;
          } else {
            ExpectRounding(with_tier, Run(with_tier, few).state, size - 1,
                           Run(with_tier, Among(easy, row, hard, 0)).state);
          }
        }
      }
    }
  }

  // On CUDA other sizes are other buckets. `wanted`: the row at place 0. Unit: the row's largest
  // number.
  static void ExpectRounding(const PlannedSolve& spec, const HostTensor& state, int64_t place,
                             const HostTensor& wanted) {
    const int64_t elements = state.elements() / state.shape[0];
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < elements; ++i) {
      const double right = Number(wanted, i);
      largest = std::max(largest, std::abs(right));
      difference = std::max(difference, std::abs(Number(state, place * elements + i) - right));
    }
    const auto* adaptive = std::get_if<AdaptivePlan>(&spec.plan);
    const double rounding = spec.tier == Tier::kDouble ? 1e-12 : 1e-5;
    // A step may be refused in one bucket and accepted in another.
    EXPECT_LE(difference / largest, rounding + (adaptive != nullptr ? 10 * adaptive->rtol : 0))
        << TierName(spec.tier) << " at " << place << " of " << state.shape[0];
    RecordLargest(spec, difference / largest);
  }

  // What docs/NUMERICS.md states, in the test's report.
  static void RecordLargest(const PlannedSolve& spec, double difference) {
    static std::map<std::string, double> seen;
    const std::string name =
        absl::StrCat(std::holds_alternative<AdaptivePlan>(spec.plan) ? "adaptive" : "fixed", "_",
                     std::string(TierName(spec.tier)));
    seen[name] = std::max(seen[name], difference);
    RecordProperty(name, absl::StrCat(seen[name]));
  }
};

TEST_P(RowIndependenceTest, OfFlows) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  PlannedSolve spec = {.model = model, .plan = Fixed(Method::kRk4, 2), .entry = Entry::kState};
  ExpectIndependent(spec, {2});
  spec.plan = Dopri5(1e-6);
  spec.save_at = {0.3, 0.9};
  ExpectIndependent(spec, {2});
  spec.log_density = LogDensity::kDivergence;
  ExpectIndependent(spec, {2});
}

TEST_P(RowIndependenceTest, OfHypersolvedFlowsAndTheirDensities) {
  const auto model = fixture::RandomModel(fixture::FlowSpec(), 1);
  PlannedSolve spec = {
      .model = model,
      .correction = fixture::RandomHypersolver(fixture::FlowCorrectionSpec(), *model, 2),
      .plan = Hypersolved(Method::kHeun, 2),
      .entry = Entry::kState,
      .direction = Direction::kNoiseToData};
  ExpectIndependent(spec, {2});
  spec.log_density = LogDensity::kStepMap;
  ExpectIndependent(spec, {2});
}

// Every kind of layer, on rows whose length fills no vector.
TEST_P(RowIndependenceTest, OfRandomNets) {
  for (const Shape& row : {Shape{3}, Shape{3, 6, 2}}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      ModelSpec spec = fixture::FlowSpec();
      spec.input.shape = row;
      spec.field = fixture::RandomLayers(row, seed);
      SCOPED_TRACE(PrintModelSpec(spec));
      ExpectIndependent({.model = fixture::RandomModel(spec, seed),
                         .plan = Fixed(Method::kHeun, 2),
                         .entry = Entry::kState},
                        row);
    }
  }
}

TEST_P(RowIndependenceTest, OfImages) {
  const auto model = fixture::RandomModel(fixture::ImageSpec(), 1);
  PlannedSolve spec = {.model = model,
                       .plan = Fixed(Method::kEuler, 2),
                       .entry = Entry::kState,
                       .want_outputs = true};
  ExpectIndependent(spec, {8, 12, 12});
  spec.plan = Dopri5(1e-3);
  ExpectIndependent(spec, {8, 12, 12});
  spec.plan = Hypersolved(Method::kEuler, 2);
  spec.correction = fixture::RandomHypersolver(fixture::ImageCorrectionSpec(), *model, 2);
  ExpectIndependent(spec, {8, 12, 12});
}

// Convolutions that no activation pads: one image alone must not be convolved in another way.
TEST_P(RowIndependenceTest, OfConvolutions) {
  for (const auto& [state, hidden, kernel, size] :
       {std::tuple{1, 4, 3, 28}, std::tuple{16, 64, 1, 14}, std::tuple{64, 64, 3, 14},
        std::tuple{65, 32, 3, 14}, std::tuple{5, 12, 5, 16}}) {
    ModelSpec spec = fixture::FlowSpec();
    spec.input.shape = {state, size, size};
    const int64_t padding = kernel / 2;
    spec.field = {{Conv2dLayer{.in = state, .out = hidden, .kernel = kernel, .padding = padding}},
                  {PreluLayer{.slopes = 1}},
                  {Conv2dLayer{.in = hidden, .out = state, .kernel = kernel, .padding = padding}}};
    SCOPED_TRACE(absl::StrCat(state, "-", hidden, " kernel ", kernel, " on ", size));
    ExpectIndependent({.model = fixture::RandomModel(spec, 1),
                       .plan = Fixed(Method::kEuler, 1),
                       .entry = Entry::kState},
                      spec.input.shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowIndependenceTest, testing::ValuesIn(DeviceNames()),
                         DeviceTestName);

}  // namespace
}  // namespace hyperserve
