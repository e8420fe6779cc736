// Error control of all slots at once: the twin on tensors of core/ode/controller.h, which says what
// the numbers are and where they come from. slot_control_test compares the two. Tensors are F64 or
// kBool, [slots], on one device; nothing waits for it. All functions throw as LibTorch does.
#pragma once

#include <ATen/ATen.h>

namespace hyperserve {

// sqrt(mean_i (e_i / (atol + rtol max(|z0_i|, |z1_i|)))^2) of each row, in double; NaN where a
// number of e or z1 is not finite. Error and states: [slots, ...] of F32 or F64.
at::Tensor SlotErrorNorms(const at::Tensor& error, const at::Tensor& z0, const at::Tensor& z1,
                          const at::Tensor& rtol, const at::Tensor& atol);

// What a StepController remembers.
struct SlotControllers {
  at::Tensor previous_norm;  // 1e-4 at the start
  at::Tensor refused;        // kBool; false at the start
};
// As StepController::Decision, of every slot. Numbers of slots whose rows have ended mean nothing.
struct SlotDecisions {
  at::Tensor accepted;  // kBool
  at::Tensor factor;
};
// StepController::Decide of every slot; replaces the tensors of `controllers`.
SlotDecisions Decide(const at::Tensor& norms, int embedded_order, SlotControllers& controllers);

// FirstStepGuess and FirstStep.
at::Tensor FirstStepGuesses(const at::Tensor& state_norms, const at::Tensor& slope_norms,
                            double span);
at::Tensor FirstSteps(const at::Tensor& guesses, const at::Tensor& slope_norms,
                      const at::Tensor& curvature_norms, int embedded_order, double span);

// ClampStep, without the last rounding of eps: depths are clamped to s1 instead.
struct SlotNextSteps {
  at::Tensor eps, s_next;
};
SlotNextSteps ClampSteps(const at::Tensor& s, const at::Tensor& eps, double s1);

// SmallestStep.
at::Tensor SmallestSteps(const at::Tensor& s);

}  // namespace hyperserve
