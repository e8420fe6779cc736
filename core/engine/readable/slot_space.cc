#include "core/engine/readable/slot_space.h"

#include <utility>

#include "core/engine/readable/row_numbers.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/space.h"

namespace hyperserve {
namespace {

at::Tensor Times(const at::Tensor& y, double factor) { return factor == 1.0 ? y : y * factor; }

}  // namespace

SlotSpace::SlotSpace(const TensorSpace::Options* options, const SlotClock& clock,
                     const at::Tensor& like, at::Tensor condition)
    : options_(options),
      clock_(clock),
      like_(like.options()),
      condition_(std::move(condition)),
      slots_(like.size(0)) {
  if (clock_.eps.each.defined()) eps_ = OverRows(Each(clock_.eps), like, 0);
}

at::Tensor SlotSpace::Each(const SlotNumbers& numbers) const {
  return numbers.each.defined() ? numbers.each.to(like_.dtype())
                                : at::full({slots_}, numbers.uniform, like_);
}

SlotNumbers SlotSpace::DepthAt(double theta) const {
  const SlotNumbers &s = clock_.s, &eps = clock_.eps;
  if (s.each.defined()) {
    return {.each = theta == 0.0 ? s.each : (s.each + eps.each * theta).clamp_max(clock_.s1)};
  }
  return {.uniform = s.uniform + theta * eps.uniform};
}

SlotSpace::State SlotSpace::Field(const PerRow& theta, const State& z) const {
  const std::optional<double>& reflected = options_->reflected_clock_sum;
  at::Tensor depth;
  if (options_->field.uses_depth()) {
    SlotNumbers at = DepthAt(theta.front());
    if (reflected && at.each.defined()) at.each = *reflected - at.each;
    if (reflected) at.uniform = *reflected - at.uniform;
    depth = Each(at);
  }
  const at::Tensor slope = options_->field.Apply(z, depth, condition_);
  return reflected ? at::neg(slope) : slope;
}

SlotSpace::State SlotSpace::Scaled(const State& y, int power) const {
  at::Tensor scaled = y;
  for (int i = 0; i < power; ++i) {
    scaled = eps_.defined() ? scaled * eps_ : Times(scaled, clock_.eps.uniform);
  }
  return scaled;
}

SlotSpace::State SlotSpace::Combine(const State& z, std::span<const Term<State>> terms) const {
  if (terms.empty()) return z;
  at::Tensor sum = Times(*terms[0].slope, terms[0].weights->front());
  for (const Term<State>& term : terms.subspan(1)) {
    sum = at::add(sum, *term.slope, term.weights->front());
  }
  return eps_.defined() ? at::addcmul(z, sum, eps_) : at::add(z, sum, clock_.eps.uniform);
}

SlotSpace::State SlotSpace::Correction(const PerRow&, const PerRow& theta, const State& z,
                                       std::span<const State> slopes, const State& z_first) const {
  const SlotNumbers s = DepthAt(theta.front());
  std::vector<int64_t> shape(z.sizes().begin(), z.sizes().end());
  shape[1] = 1;
  const auto constant = [&](const SlotNumbers& numbers) {
    return numbers.each.defined() ? OverRows(Each(numbers), z, 0).expand(shape)
                                  : at::full(shape, numbers.uniform, like_);
  };
  std::vector<at::Tensor> inputs;
  for (const CorrectionInput input : options_->correction_inputs) {
    switch (input) {
      case CorrectionInput::kState:
        inputs.push_back(z);
        break;
      case CorrectionInput::kSlope1:
        inputs.push_back(slopes[0]);
        break;
      case CorrectionInput::kSlope2:
        inputs.push_back(slopes[1]);
        break;
      case CorrectionInput::kState0:
        inputs.push_back(z_first);
        break;
      case CorrectionInput::kStep:
        inputs.push_back(constant(clock_.eps));
        break;
      case CorrectionInput::kDepth:
        inputs.push_back(constant(s));
        break;
      case CorrectionInput::kSlopes:  // of readouts only
        break;
    }
  }
  const Net& net = *options_->correction;
  const at::Tensor depth = net.uses_depth() ? Each(s) : at::Tensor();
  const at::Tensor g = net.Apply(at::cat(inputs, 1), depth, condition_);
  return Scaled(g, clock_.order);
}

}  // namespace hyperserve
