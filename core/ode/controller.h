// Step size control of one row: plain arithmetic on doubles, no state of any other row, no tensors.
//
// Source: Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", II.4 (first step,
// PI control after Gustafsson).
#pragma once

namespace hyperserve {

// Decides what follows a step whose error norm was measured (1: just within tolerance).
class StepController {
 public:
  // The order of the embedded solution, the lower one of the pair.
  explicit StepController(int embedded_order) : estimate_order_(embedded_order + 1) {}

  struct Decision {
    bool accepted = false;
    double factor = 1.0;  // of the next step size; below 1 where the step was refused
  };

  // A norm that is not finite refuses the step and shortens it as far as the bounds allow.
  Decision Decide(double error_norm);

 private:
  int estimate_order_;
  double previous_norm_ = 1e-4;  // of the last accepted step
  bool refused_ = false;         // the last step was refused: no growth right after
};

// The first step, in two parts, since the second needs a slope at the end of the first guess. The
// norms are those of error control: of the state, of the slope there, and of the slopes' difference
// divided by the guess. Both results are positive and at most `span`.
double FirstStepGuess(double state_norm, double slope_norm, double span);
double FirstStep(double guess, double slope_norm, double curvature_norm, int embedded_order,
                 double span);

// eps, shortened by what rounding would carry s + eps beyond s1. Precondition: s < s1.
double FitStep(double s, double eps, double s1);

// The step size to take from s: eps, or what is left where the end lies within (or only just
// beyond) it.
struct NextStep {
  double eps = 0.0;     // s + eps <= s1, in floating point too
  double s_next = 0.0;  // exactly s1 for the last step
};
NextStep ClampStep(double s, double eps, double s1);

// Steps below this are lost in rounding at s: the row underflows.
double SmallestStep(double s);

}  // namespace hyperserve
