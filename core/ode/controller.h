// Step size control of one row: arithmetic on doubles, without tensors and without knowledge of
// other rows. Nothing here fails; numbers that are not finite have defined results. Functions are
// pure; a StepController belongs to one row and to one thread at a time.
//
// Source: Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", section II.4
// (accepting steps, the first step); Hairer, Wanner, "Solving Ordinary Differential Equations II",
// section IV.2 (PI control after Gustafsson).
#pragma once

namespace hyperserve {

// Accepts or refuses each step of one row, and chooses the size of the next.
class StepController {
 public:
  // `embedded_order`: of the solution that the error is measured against.
  explicit StepController(int embedded_order) : estimate_order_(embedded_order + 1) {}

  struct Decision {
    bool accepted = false;
    double factor = 1.0;  // next step size / this one, in [0.2, 10]; below 1 after a refusal
  };

  // Call once for each step, in order. A step with an error norm of at most 1 is accepted. A norm
  // that is not finite refuses the step and gives the smallest factor. The first step accepted
  // after a refusal never grows the step size.
  Decision Decide(double error_norm);

 private:
  int estimate_order_;
  double previous_norm_ = 1e-4;  // of the last accepted step
  bool refused_ = false;         // the last step was refused: no growth right after
};

// The size of the first step, in two parts: FirstStep needs the slope at the end of an Euler step
// of size `guess`, which FirstStepGuess returns. The norms are those of error control, at s0:
// state_norm of z, slope_norm of f, curvature_norm of (difference of the two slopes) / guess. Both
// results are positive and at most `span`. Precondition: span > 0.
double FirstStepGuess(double state_norm, double slope_norm, double span);
double FirstStep(double guess, double slope_norm, double curvature_norm, int embedded_order,
                 double span);

// The largest step of at most eps with s + eps <= s1 in floating point. Precondition: s < s1.
double FitStep(double s, double eps, double s1);

struct NextStep {
  double eps = 0.0;     // s + eps <= s1, in floating point too
  double s_next = 0.0;  // exactly s1 for the last step
};
// The step to take from s: eps, or the rest of the span where eps reaches s1 or leaves less than
// 1 % of itself. Precondition: s < s1.
NextStep ClampStep(double s, double eps, double s1);

// Ten units in the last place of s, at least the smallest normal double. Shorter steps would be
// lost in rounding, so the row ends in kStepUnderflow.
double SmallestStep(double s);

}  // namespace hyperserve
