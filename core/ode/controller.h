// Step size control of one row: arithmetic on doubles, without tensors and without knowledge of
// other rows. Nothing here fails; numbers that are not finite have defined results. Functions are
// pure; a StepController belongs to one row and to one thread at a time.
//
// Source: Hairer, Norsett, Wanner, "Solving Ordinary Differential Equations I", section II.4
// (accepting steps, the first step); Hairer, Wanner, "Solving Ordinary Differential Equations II",
// section IV.2 (PI control after Gustafsson).
#pragma once

namespace hyperserve {

// The constants of step size control, for this file and for its twin on tensors
// (core/engine/readable/slot_control.h).
namespace step_control {
// Aim below the tolerance, so that few steps are refused.
inline constexpr double kSafety = 0.9;
// Bounds of one change of the step size.
inline constexpr double kFactorMin = 0.2;
inline constexpr double kFactorMax = 10.0;
// PI control: the weight of the previous step's norm, and of this one's.
inline constexpr double kProportional = 0.2;
inline constexpr double kIntegral = 1.0 - 0.75 * kProportional;
// The previous norm at the start, and its lower bound: a smaller one would dominate the factor.
inline constexpr double kNormMin = 1e-4;
// A step may be this much longer if it is the last, so that no tiny step follows.
inline constexpr double kLastStepStretch = 1.01;
// In units of the last place of s.
inline constexpr double kSmallestStepUlps = 10.0;
// The first step: the least usable norm, the guess where there is none, the share of a norm that
// it aims at, the steepest slope that counts as flat, how much a flat row's step shrinks from the
// guess, and how much any may grow.
inline constexpr double kFirstNormMin = 1e-5;
inline constexpr double kFirstFallback = 1e-6;
inline constexpr double kFirstShare = 0.01;
inline constexpr double kFirstFlat = 1e-15;
inline constexpr double kFirstFlatGrowth = 1e-3;
inline constexpr double kFirstGrowthMax = 100.0;
}  // namespace step_control

// Accepts or refuses each step of one row, and chooses the size of the next.
class StepController {
 public:
  // `embedded_order`: of the solution that the error is measured against.
  explicit StepController(int embedded_order) : estimate_order_(embedded_order + 1) {}

  // Of one attempted step. The caller multiplies the size of that step, not the one it had wanted.
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
  double previous_norm_ = step_control::kNormMin;  // of the last accepted step
  bool refused_ = false;  // the last step was refused: no growth right after
};

// The size of the first step, in two parts: FirstStep needs the slope at the end of an Euler step
// of size `guess`, which FirstStepGuess returns. The norms are those of error control, at s0:
// state_norm of z, slope_norm of f, curvature_norm of (difference of the two slopes) / guess. Both
// results are positive and at most `span`. Precondition: span > 0.
double FirstStepGuess(double state_norm, double slope_norm, double span);
// Where slope_norm or curvature_norm is not finite the result is `guess`.
double FirstStep(double guess, double slope_norm, double curvature_norm, int embedded_order,
                 double span);

// The largest step of at most eps with s + eps <= s1 in floating point. Precondition: s < s1.
double FitStep(double s, double eps, double s1);

// The solver evaluates with `eps` and stands at `s_next` afterwards; the two agree within rounding.
struct NextStep {
  double eps = 0.0;     // s + eps <= s1, in floating point too
  double s_next = 0.0;  // exactly s1 for the last step
};
// The step from s to s_next, as long as the depth moves: where depths are large, s + eps is
// rounded. Precondition: s < s_next <= s1.
NextStep StepTo(double s, double s_next, double s1);
// The step to take from s: eps, or the rest of the span where eps reaches s1 or leaves less than
// 1 % of itself. Precondition: s < s1.
NextStep ClampStep(double s, double eps, double s1);

// Ten units in the last place of s, at least the smallest normal double. Shorter steps would be
// lost in rounding, so the row ends in kStepUnderflow.
double SmallestStep(double s);

}  // namespace hyperserve
