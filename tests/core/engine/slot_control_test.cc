#include "core/engine/readable/slot_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/engine/readable/row_numbers.h"
#include "core/ode/controller.h"
#include "core/ode/space.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor Doubles(const PerRow& values) {
  return RowTensor(values, at::TensorOptions(at::kDouble));
}

// Numbers from 1e-20 to 1e5, and the odd ones.
PerRow Norms(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-20.0, 5.0);
  PerRow norms = {0.0, 1.0, kNaN, kInf, 1e-5, 1e-15, 1.0 + 1e-15};
  while (norms.size() < 200) norms.push_back(std::pow(10.0, exponent(random)));
  return norms;
}

// The same formulas in the same precision: pow may round differently in a vector.
void ExpectSame(double found, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found));
  } else {
    EXPECT_NEAR(found, expected, 1e-14 * std::abs(expected));
  }
}

TEST(SlotControlTest, DecisionsAreThoseOfTheController) {
  const int order = 4;
  std::vector<StepController> controllers(200, StepController(order));
  SlotControllers slots{.previous_norm = at::full({200}, step_control::kNormMin, at::kDouble),
                        .refused = at::zeros({200}, at::kBool)};
  for (unsigned step = 0; step < 6; ++step) {
    PerRow norms = Norms(step);
    std::shuffle(norms.begin(), norms.end(), std::mt19937(step));
    const SlotDecisions decisions = Decide(Doubles(norms), order, slots);
    const PerRow accepted = RowValues(decisions.accepted), factor = RowValues(decisions.factor);
    for (size_t i = 0; i < norms.size(); ++i) {
      const StepController::Decision expected = controllers[i].Decide(norms[i]);
      EXPECT_EQ(accepted[i] != 0.0, expected.accepted) << norms[i];
      ExpectSame(factor[i], expected.factor);
    }
  }
}

TEST(SlotControlTest, FirstStepsAreThoseOfTheController) {
  const PerRow states = Norms(1);
  PerRow slopes = Norms(2), curvatures = Norms(3);
  std::shuffle(slopes.begin(), slopes.end(), std::mt19937(1));
  std::shuffle(curvatures.begin(), curvatures.end(), std::mt19937(2));
  const at::Tensor guesses = FirstStepGuesses(Doubles(states), Doubles(slopes), 0.7);
  const PerRow steps = RowValues(FirstSteps(guesses, Doubles(slopes), Doubles(curvatures), 4, 0.7));
  const PerRow guessed = RowValues(guesses);
  for (size_t i = 0; i < states.size(); ++i) {
    const double guess = FirstStepGuess(states[i], slopes[i], 0.7);
    ExpectSame(guessed[i], guess);
    ExpectSame(steps[i], FirstStep(guess, slopes[i], curvatures[i], 4, 0.7));
  }
}

TEST(SlotControlTest, TheLastStepEndsAtTheEnd) {
  const PerRow s = {0.0, 0.3, 0.5, 0.99, 0.1, 0.9}, eps = {0.1, 0.7, 0.4999, 0.5, 1e-9, 0.0995};
  const SlotNextSteps next = ClampSteps(Doubles(s), Doubles(eps), 1.0);
  const PerRow sizes = RowValues(next.eps), ends = RowValues(next.s_next);
  const PerRow smallest = RowValues(SmallestSteps(Doubles({0.0, -3.0, 0.5})));
  for (size_t i = 0; i < s.size(); ++i) {
    const NextStep expected = ClampStep(s[i], eps[i], 1.0);
    EXPECT_NEAR(sizes[i], expected.eps, 1e-16);
    EXPECT_EQ(ends[i], expected.s_next);
  }
  EXPECT_EQ(smallest, (PerRow{SmallestStep(0.0), SmallestStep(-3.0), SmallestStep(0.5)}));
}

TEST(SlotControlTest, ErrorNorms) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    at::Tensor z0 = at::randn({5, 3, 7}, dtype), z1 = at::randn({5, 3, 7}, dtype);
    at::Tensor error = at::randn({5, 3, 7}, dtype) * 1e-4;
    z1[3][2][6] = kInf;
    error[4][0][0] = kInf;
    const PerRow rtol = {1e-5, 1e-3, 1e-7, 1e-5, 1e-5}, atol = {1e-6, 1e-5, 1e-9, 1e-6, 1e-6};
    const PerRow squares = RowErrorSquares(error, z0, z1, rtol, atol);
    const PerRow norms = RowValues(SlotErrorNorms(error, z0, z1, Doubles(rtol), Doubles(atol)));
    for (size_t i = 0; i < 5; ++i) ExpectSame(norms[i], std::sqrt(squares[i] / 21));
  }
}

}  // namespace
}  // namespace hyperserve
