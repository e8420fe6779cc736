#include "core/engine/captured/step_graphs.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/slot_run.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/warm_sizes.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// What a step depends on beside the model and the correction.
BatchSpec StepOf(const BatchSpec& spec) {
  return {.model = nullptr,
          .correction = nullptr,
          .method = spec.method,
          .stepping = spec.stepping,
          .tier = spec.tier,
          .direction = spec.direction,
          .span = spec.span};
}

bool Alike(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

StepGraphs::StepGraphs(at::Device device) : device_(device) {
  for (size_t i = 0; i < kGraphLanes; ++i) {
    const c10::impl::VirtualGuardImpl streams(device.type());
    lanes_.push_back(
        {.stream = streams.getStreamFromGlobalPool(device), .captures = CudaCaptureLane(device)});
  }
}

bool StepGraphs::Entry::IsOf(const BatchSpec& spec) const {
  return step == StepOf(spec) && model.lock() == spec.model && correction.lock() == spec.correction;
}

bool StepGraphs::Entry::gone() const {
  const std::weak_ptr<const Hypersolver> none;
  const bool corrected = correction.owner_before(none) || none.owner_before(correction);
  return model.expired() || (corrected && correction.expired());
}

const StepGraphs::Step* StepGraphs::Find(const BatchSpec& spec, int64_t rows) const {
  for (const Entry& entry : entries_) {
    if (entry.gone() || !entry.IsOf(spec)) continue;
    const auto found = entry.by_bucket.find(Bucket(rows));
    return found == entry.by_bucket.end() ? nullptr : &found->second;
  }
  return nullptr;
}

absl::Status StepGraphs::Supports(const BatchSpec& spec, int64_t rows) const {
  if (spec.tier == Tier::kFast) return absl::UnimplementedError("its tiers are exact and double");
  if (!SlotRunSupports(spec)) {
    return absl::UnimplementedError(
        "steps with densities, derivatives, saved states, depths or tables, or of a field.pt2, are "
        "not captured");
  }
  const std::lock_guard lock(mutex_);
  const Step* step = Find(spec, rows);
  if (step != nullptr) return step->captured;
  return absl::UnimplementedError(
      absl::StrCat("no step of ", Bucket(rows), " rows was captured at a warm-up"));
}

std::optional<StepGraphs::Lease> StepGraphs::Take(const BatchSpec& spec, int64_t rows) {
  const std::lock_guard lock(mutex_);
  const Step* step = Find(spec, rows);
  for (size_t i = 0; i < lanes_.size() && step != nullptr; ++i) {
    if (lanes_[i].taken) continue;
    lanes_[i].taken = true;
    const auto give_back = [this, i](const c10::Stream* stream) {
      const std::lock_guard lock(mutex_);
      lanes_[i].taken = false;
      delete stream;
    };
    return Lease{.stream = StreamLease(new c10::Stream(lanes_[i].stream), give_back),
                 .graph = step->graphs[i]};
  }
  return std::nullopt;
}

bool StepGraphs::Capture(const BatchSpec& spec, int64_t rows, const StreamLease& scratch) {
  if (spec.tier == Tier::kFast || !SlotRunSupports(spec)) return false;
  if (Bucket(rows) > CapturedRowsMax(spec.model->field_macs())) return false;
  const std::lock_guard capturing(capturing_);
  {
    const std::lock_guard lock(mutex_);
    if (Find(spec, rows) != nullptr) return false;
  }
  Step step;
  step.captured = CatchExceptions("its step cannot be captured", [&] {
    step.graphs = MakeGraphs(spec, rows, scratch);
    return absl::OkStatus();
  });
  if (!step.captured.ok()) step.captured = absl::UnimplementedError(step.captured.message());
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.gone(); });
  auto entry = std::ranges::find_if(entries_, [&](const Entry& one) { return one.IsOf(spec); });
  if (entry == entries_.end()) {
    entry = entries_.insert(
        entry, {.model = spec.model, .correction = spec.correction, .step = StepOf(spec)});
  }
  entry->by_bucket.emplace(Bucket(rows), std::move(step));
  return true;
}

StepGraphs::Graphs StepGraphs::MakeGraphs(const BatchSpec& spec, int64_t rows,
                                          const StreamLease& scratch) const {
  const TorchScope scope(*scratch);
  const SolveSetup setup = SetUpSolve(spec, rows, device_);
  Shape shape = spec.model->state_shape();
  shape.insert(shape.begin(), setup.bucket);
  const auto dtype = at::TensorOptions(device_).dtype(SolveDtype(spec));
  const bool fixed = spec.stepping == Stepping::kFixed;
  SlotSteps steps(&setup.space.options(), OptionsOf(spec));
  steps.Put(at::zeros(shape, dtype), 0, setup.bucket,
            fixed ? StepControl(FixedSteps{}) : StepControl(ErrorControl{}));
  Graphs graphs;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    auto places = PlacesLike(steps.MakePlaces(lanes_[i].stream), i);
    graphs.push_back(steps.Capture(std::move(places), *lanes_[i].captures));
  }
  return graphs;
}

std::shared_ptr<SlotPlaces> StepGraphs::PlacesLike(std::shared_ptr<SlotPlaces> made,
                                                   size_t lane) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    for (const auto& [bucket, step] : entry.by_bucket) {
      if (!step.captured.ok()) continue;
      const std::shared_ptr<SlotPlaces>& places = step.graphs[lane]->places;
      if (std::ranges::equal(places->numbers, made->numbers, Alike)) return places;
    }
  }
  return made;
}

}  // namespace hyperserve
