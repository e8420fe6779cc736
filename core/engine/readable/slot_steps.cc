#include "core/engine/readable/slot_steps.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/slot_control.h"
#include "core/engine/readable/slot_space.h"
#include "core/ode/controller.h"
#include "core/ode/rows.h"
#include "core/ode/space.h"
#include "core/ode/step.h"
#include "core/ode/tableau.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// A step on the unit clock (slot_space.h).
const PerRow kStart = {0.0}, kWhole = {1.0}, kEnd = {1.0};

constexpr int64_t kStepsMost = std::numeric_limits<int32_t>::max();

constexpr int8_t CodeOf(RowStatus status) { return static_cast<int8_t>(status); }

// For each row: is every number finite? What is not finite is not equal to itself less itself.
at::Tensor FiniteRows(const at::Tensor& z) { return (z - z).eq(0).flatten(1).all(1); }

at::Tensor ChooseRows(const at::Tensor& mask, const at::Tensor& yes, const at::Tensor& no) {
  return at::where(OverRows(mask, yes, 0), yes, no);
}

// A tensor with numbers of `slots` slots: that of all but some, which have their own already.
at::Tensor Grown(const at::Tensor& old, int64_t slots, const at::TensorOptions& options) {
  return old.defined() ? old.clone() : at::zeros({slots}, options);
}

}  // namespace

std::array<at::Tensor*, SlotPlaces::kCount> SlotSteps::PerSlot() {
  return {&z_,
          &z_first_,
          &condition_,
          &alive_,
          &progress_,
          &s_,
          &eps_,
          &rtol_,
          &atol_,
          &status_,
          &nfe_,
          &fresh_,
          &steps_left_,
          &overflows_,
          &first_slope_,
          &controllers_.previous_norm,
          &controllers_.refused};
}

void SlotSteps::Use(std::shared_ptr<const StepGraph> graph) {
  places_ = graph->places;
  graph_ = std::move(graph);
}

void SlotSteps::Settle() {
  const auto tensors = PerSlot();
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor& place = places_->numbers[i];
    if (!place.defined()) continue;
    if (tensors[i]->defined() && !tensors[i]->is_same(place)) place.copy_(*tensors[i]);
    *tensors[i] = place;
  }
}

std::shared_ptr<SlotPlaces> SlotSteps::MakePlaces(const c10::Stream& stream) {
  if (any_fresh_) ChooseFirstSteps();
  if (!controlled()) {
    const auto zeros = [&](at::ScalarType dtype) {
      return at::zeros({slots()}, z_.options().dtype(dtype));
    };
    alive_ = zeros(at::kBool);
    progress_ = zeros(at::kInt);
    s_ = eps_ = zeros(at::kDouble);
  }
  const c10::StreamGuard guard(stream);
  auto places = std::make_shared<SlotPlaces>();
  const auto tensors = PerSlot();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->defined()) places->numbers[i] = at::empty_like(*tensors[i]);
  }
  return places;
}

std::shared_ptr<const StepGraph> SlotSteps::Capture(std::shared_ptr<SlotPlaces> places,
                                                    const CaptureWork& capture) {
  places_ = places;
  const auto tensors = PerSlot();
  for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = places_->numbers[i];
  auto graph = std::make_shared<StepGraph>();
  graph->places = std::move(places);
  graph->step = capture([&] {
    if (controlled()) {
      BeginControlled();
    } else {
      clock_ = {.s = {.each = s_},
                .eps = {.each = eps_},
                .s1 = options_.s1,
                .order = options_.tableau.order};
      slopes_.clear();
    }
    while (!Evaluate()) continue;
    Settle();
  });
  return graph;
}

void SlotSteps::PutCondition(const at::Tensor& condition, int64_t first, int64_t bucket) {
  if (!condition.defined()) return;
  const int64_t rows = condition.size(0);
  if (rows == bucket) {
    condition_ = condition;
    return;
  }
  condition_ = condition_.defined() ? condition_.clone()
                                    : at::zeros({bucket, condition.size(1)}, condition.options());
  condition_.narrow(0, first, rows).copy_(condition);
}

void SlotSteps::Put(const SlotStarts& starts, int64_t first, int64_t bucket,
                    const StepControl& control) {
  const at::Tensor& z0 = starts.z;
  const int64_t rows = z0.size(0);
  if (slots() != bucket) {  // nobody is here
    for (at::Tensor* tensor : PerSlot()) *tensor = at::Tensor();
    std::vector<int64_t> shape(z0.sizes().begin(), z0.sizes().end());
    shape[0] = bucket;
    z_ = rows == bucket ? z0 : at::zeros(shape, z0.options());
  } else {
    z_ = z_.clone();
  }
  const auto put = [&](at::Tensor& tensor, double value, at::ScalarType dtype) {
    tensor = Grown(tensor, bucket, z0.options().dtype(dtype));
    tensor.narrow(0, first, rows).fill_(value);
  };
  if (!z_.is_same(z0)) z_.narrow(0, first, rows).copy_(z0);
  PutCondition(starts.condition, first, bucket);
  if (options_.hypersolved) {
    if (z_first_.defined()) {
      z_first_ = z_first_.clone();
      z_first_.narrow(0, first, rows).copy_(z0);
    } else {
      z_first_ = z_;
    }
  }
  if (const auto* error = std::get_if<ErrorControl>(&control)) {
    // Slots that nobody took count as ended.
    if (!status_.defined()) {
      status_ = at::full({bucket}, CodeOf(RowStatus::kConverged), z0.options().dtype(at::kChar));
      rtol_ = atol_ = at::ones({bucket}, z0.options().dtype(at::kDouble));
      s_ = eps_ = at::ones({bucket}, z0.options().dtype(at::kDouble));
    }
    put(status_, kUnderWay, at::kChar);
    put(s_, options_.s0, at::kDouble);
    put(rtol_, error->rtol, at::kDouble);
    put(atol_, error->atol, at::kDouble);
    put(steps_left_, static_cast<double>(std::min(error->max_steps, kStepsMost)), at::kInt);
    put(controllers_.previous_norm, step_control::kNormMin, at::kDouble);
    put(controllers_.refused, 0, at::kBool);
    put(overflows_, 0, at::kInt);
    put(nfe_, 0, at::kInt);
    put(fresh_, 1, at::kBool);
    any_fresh_ = true;
  } else if (alive_.defined()) {
    put(alive_, 1, at::kBool);
    put(progress_, 0, at::kInt);
  } else if (graph_ != nullptr) {
    alive_ = at::ones({bucket}, z0.options().dtype(at::kBool));
    progress_ = at::zeros({bucket}, z0.options().dtype(at::kInt));
  }
  if (graph_ != nullptr) Settle();
}

void SlotSteps::BeginFixed(const std::vector<FixedPlace>& places) {
  const auto depth = [&](const FixedPlace& place) {
    return DepthOfStep(options_, place.step, place.steps);
  };
  const auto eps = [&](const FixedPlace& place) {
    const double end = DepthOfStep(options_, place.step + 1, place.steps);
    return StepTo(depth(place), end, options_.s1).eps;
  };
  clock_ = {.s1 = options_.s1, .order = options_.tableau.order};
  const bool together =
      graph_ == nullptr && std::ranges::all_of(places, [&](const FixedPlace& place) {
        return place.step == places[0].step && place.steps == places[0].steps;
      });
  if (together) {
    clock_.s.uniform = depth(places[0]);
    clock_.eps.uniform = eps(places[0]);
  } else {
    PerRow depths(static_cast<size_t>(slots()), options_.s0), sizes(depths.size(), 0.0);
    for (const FixedPlace& place : places) {
      std::fill_n(depths.begin() + place.slots.first, place.slots.rows, depth(place));
      std::fill_n(sizes.begin() + place.slots.first, place.slots.rows, eps(place));
    }
    StartClock(depths, sizes);
  }
  slopes_.clear();
  under_way_ = true;
}

void SlotSteps::StartClock(const PerRow& depths, const PerRow& sizes) {
  const at::TensorOptions doubles = z_.options().dtype(at::kDouble);
  if (graph_ == nullptr) {
    clock_.s.each = RowTensor(depths, doubles);
    clock_.eps.each = RowTensor(sizes, doubles);
    return;
  }
  const auto put = [&](const PerRow& numbers, PerRow& last, at::Tensor& place) {
    if (numbers == last) return;
    place.copy_(RowTensor(numbers, at::TensorOptions(at::kDouble)), /*non_blocking=*/true);
    last = numbers;
  };
  put(depths, places_->depths, s_);
  put(sizes, places_->sizes, eps_);
}

void SlotSteps::BeginControlled() {
  if (any_fresh_) ChooseFirstSteps();
  under_way_ = true;
  if (graph_ != nullptr) return Settle();
  SlotNextSteps next = ClampSteps(s_, eps_, options_.s1);
  s_next_ = std::move(next.s_next);
  clock_ = {.s = {.each = s_},
            .eps = {.each = next.eps},
            .s1 = options_.s1,
            .order = options_.tableau.order};
  slopes_ = {first_slope_};
}

// As ChooseFirstSteps of core/ode/first_steps.h, for the slots that are fresh; all slots see the
// net, so that its numbers do not depend on how many are.
void SlotSteps::ChooseFirstSteps() {
  const double span = options_.s1 - options_.s0;
  const int order = options_.tableau.embedded_order;
  clock_ = {.s = {.each = s_}, .eps = {.each = at::zeros_like(s_)}, .s1 = options_.s1};
  const at::Tensor slope = Space().Field(kStart, z_);
  const auto norms = [&](const at::Tensor& error) {
    return SlotErrorNorms(error, z_, z_, rtol_, atol_);
  };
  const at::Tensor slope_norms = norms(slope);
  const at::Tensor guesses =
      at::minimum(FirstStepGuesses(norms(z_), slope_norms, span), options_.s1 - s_);
  clock_.eps.each = guesses;
  const std::vector<Term<at::Tensor>> euler = {{.weights = &kWhole, .slope = &slope}};
  const SlotSpace space = Space();
  const at::Tensor probe = space.Field(kEnd, space.Combine(z_, euler));
  const at::Tensor first =
      at::maximum(FirstSteps(guesses, slope_norms, norms(probe - slope) / guesses, order, span),
                  SmallestSteps(s_) * 10.0);
  const at::Tensor finite = FiniteRows(slope), failed = fresh_ & finite.logical_not();
  status_ = status_.masked_fill(failed, CodeOf(RowStatus::kNonFinite));
  nfe_ = nfe_ + fresh_.to(at::kInt) + (fresh_ & finite).to(at::kInt);
  eps_ = at::where(fresh_, first, eps_);
  first_slope_ = first_slope_.defined() ? ChooseRows(fresh_, slope, first_slope_) : slope;
  fresh_ = at::zeros_like(fresh_);
  any_fresh_ = false;
}

bool SlotSteps::Evaluate() {
  if (graph_ != nullptr) {
    graph_->step->Start();
    Abandon();
    return true;
  }
  if (slopes_.size() < stages()) {
    slopes_.push_back(NextSlope(Space(), options_.tableau, kStart, kWhole, z_,
                                std::span<const at::Tensor>(slopes_)));
  }
  if (slopes_.size() < stages()) return false;
  controlled() ? EndControlled() : EndFixed();
  Abandon();
  return true;
}

void SlotSteps::Abandon() {
  slopes_.clear();
  under_way_ = false;
}

void SlotSteps::EndFixed() {
  const SlotSpace space = Space();
  const std::span<const at::Tensor> slopes(slopes_);
  const at::Tensor z_next =
      options_.hypersolved
          ? HypersolvedUpdate<SlotSpace>(space, options_.tableau, kStart, kWhole, z_, z_first_,
                                         slopes)
          : ClassicalUpdate<SlotSpace>(space, options_.tableau, kWhole, z_, slopes);
  const at::Tensor finite = FiniteRows(z_next);
  alive_ = alive_.defined() ? alive_ & finite : finite;
  z_ = ChooseRows(alive_, z_next, z_);
  progress_ = progress_.defined() ? at::add(progress_.to(at::kInt), alive_) : alive_;
}

void SlotSteps::EndControlled() {
  const SlotSpace space = Space();
  const Tableau& tableau = options_.tableau;
  const at::Tensor z_next = ClassicalUpdate<SlotSpace>(space, tableau, kWhole, z_, slopes_);
  Combination<SlotSpace> estimate;
  estimate.AddSlopes(kWhole, tableau.error, slopes_);
  const at::Tensor error = estimate.Sum(space, space.Zero(z_));
  const at::Tensor norms = SlotErrorNorms(error, z_, z_next, rtol_, atol_);
  const at::Tensor running = status_.lt(0);
  // Of rows that have ended too, where nobody reads it.
  const SlotDecisions decisions = Decide(norms, tableau.embedded_order, controllers_);
  const at::Tensor accepted = decisions.accepted & running;
  const at::Tensor s_next = at::where(accepted, s_next_, s_);
  const at::Tensor one = running.to(at::kInt);
  eps_ = at::where(running, clock_.eps.each * decisions.factor, eps_);
  nfe_ = at::add(nfe_, one, tableau.stages() - 1);
  steps_left_ = steps_left_ - one;
  at::Tensor failed;  // the slope at the end is not finite
  if (tableau.fsal()) {
    first_slope_ = ChooseRows(accepted, slopes_.back(), first_slope_);
  } else {
    const at::Tensor goes_on = accepted & s_next.ne(options_.s1);
    first_slope_ = ChooseRows(accepted, space.Field(kEnd, z_next), first_slope_);
    nfe_ = nfe_ + goes_on.to(at::kInt);
    failed = FiniteRows(first_slope_).logical_not();
  }
  s_ = s_next;
  z_ = ChooseRows(accepted, z_next, z_);
  // The last reason that holds counts.
  const at::Tensor small = eps_.ge(SmallestSteps(s_)).logical_not();
  const at::Tensor not_a_number = at::isnan(norms);
  const auto end = [&](const at::Tensor& where, RowStatus status) {
    status_ = status_.masked_fill(running & where, CodeOf(status));
  };
  overflows_ = at::add(overflows_, running & not_a_number);
  end(steps_left_.le(0), RowStatus::kStepLimit);
  end(overflows_.gt(Row::kOverflowsMax), RowStatus::kNonFinite);
  end(small, RowStatus::kStepUnderflow);
  end(small & not_a_number, RowStatus::kNonFinite);
  if (failed.defined()) end(failed, RowStatus::kNonFinite);
  end(s_.eq(options_.s1), RowStatus::kConverged);
}

void SlotSteps::Clear() {
  for (at::Tensor* tensor : PerSlot()) *tensor = at::Tensor();
  any_fresh_ = false;
  Abandon();
}

SlotRows SlotSteps::At(const SlotRange& range) const {
  const auto part = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const at::Tensor rows = tensor.narrow(0, range.first, range.rows);
    return graph_ == nullptr ? rows : rows.clone();  // the next step overwrites the places
  };
  return {.z = part(z_), .progress = part(progress_), .status = part(status_), .nfe = part(nfe_)};
}

std::vector<int8_t> SlotSteps::ReadStatuses() const {
  const at::Tensor host = status_.to(at::kCPU);
  return {host.const_data_ptr<int8_t>(), host.const_data_ptr<int8_t>() + host.numel()};
}

void SlotSteps::Keep(const std::vector<int64_t>& slots, int64_t bucket) {
  std::vector<int64_t> from = slots;
  from.resize(static_cast<size_t>(bucket), slots.front());
  const at::Tensor indices = at::tensor(from, at::kLong).to(z_.device(), /*non_blocking=*/true);
  for (at::Tensor* tensor : PerSlot()) {
    if (tensor->defined()) *tensor = tensor->index_select(0, indices);
  }
  places_ = nullptr;  // they and the graph are of the larger bucket
  graph_ = nullptr;
  const int64_t rows = static_cast<int64_t>(slots.size());
  // Copies in the slots that are left over count as ended.
  status_.narrow(0, rows, bucket - rows).fill_(CodeOf(RowStatus::kConverged));
}

}  // namespace hyperserve
