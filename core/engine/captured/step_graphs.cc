#include "core/engine/captured/step_graphs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/engine/choose_engine.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/slot_run.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/warm_sizes.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

constexpr int64_t kOneStep = 0;  // the only work of a bucket

// What a step depends on beside the model and the correction: its depth and its size are numbers
// in places, so one serves every grid.
BatchSpec StepOf(const BatchSpec& spec) {
  return {.model = nullptr,
          .correction = nullptr,
          .method = spec.method,
          .stepping = spec.stepping,
          .tier = spec.tier,
          .direction = spec.direction,
          .span = spec.span};
}

}  // namespace

StepGraphs::StepGraphs(CaptureLanes* lanes) : lanes_(lanes), works_(StepOf) {}

absl::Status StepGraphs::Supports(const BatchSpec& spec, int64_t rows) const {
  if (spec.tier == Tier::kFast) return absl::UnimplementedError("its tiers are exact and double");
  if (!SlotRunSupports(spec)) {
    return absl::UnimplementedError(
        "steps with control signals, guidance, densities, derivatives, saved states or depths, or "
        "of a field.pt2, are not captured");
  }
  const auto found = works_.Find(spec, Bucket(rows));
  if (!found.empty()) return found.at(kOneStep).status;
  return absl::UnimplementedError(
      absl::StrCat("no step of ", Bucket(rows), " rows was captured at a warm-up"));
}

std::optional<StepGraphs::Lease> StepGraphs::Take(const BatchSpec& spec, int64_t rows) const {
  const auto found = works_.Find(spec, Bucket(rows));
  std::optional<CaptureLanes::Lease> lease = found.empty() ? std::nullopt : lanes_->Take();
  if (!lease) return std::nullopt;
  return Lease{.stream = std::move(lease->stream),
               .graph = found.at(kOneStep).by_lane[lease->lane]};
}

bool StepGraphs::Capture(const BatchSpec& spec, int64_t rows, const StreamLease& scratch) {
  if (spec.tier == Tier::kFast || !SlotRunSupports(spec)) return false;
  if (Bucket(rows) > CapturedRowsMax(spec.model->field_macs())) return false;
  return works_.Capture(spec, Bucket(rows), kOneStep,
                        [&] { return MakeGraphs(spec, rows, scratch); });
}

StepGraphs::Graphs StepGraphs::MakeGraphs(const BatchSpec& spec, int64_t rows,
                                          const StreamLease& scratch) const {
  const TorchScope scope(*scratch);
  const at::Device device = lanes_->device();
  const SolveSetup setup = SetUpSolve(spec, rows, device);
  Shape shape = spec.model->state_shape();
  shape.insert(shape.begin(), setup.bucket);
  const auto dtype = at::TensorOptions(device).dtype(SolveDtype(spec));
  const bool fixed = spec.stepping == Stepping::kFixed;
  SlotSteps steps(&setup.space.options(), OptionsOf(spec));
  SlotStarts zeros{.z = at::zeros(shape, dtype), .condition = {}};
  if (const Shape& features = spec.model->spec().condition; !features.empty()) {
    zeros.condition = at::zeros({setup.bucket, features[0]}, dtype);
  }
  steps.Put(zeros, 0, setup.bucket,
            fixed ? StepControl(FixedSteps{}) : StepControl(ErrorControl{}));
  Graphs graphs;
  for (size_t i = 0; i < kGraphLanes; ++i) {
    auto places = works_.PlacesLike(steps.MakePlaces(lanes_->stream(i)), i);
    graphs.push_back(steps.Capture(std::move(places), [&](const std::function<void()>& step) {
      return lanes_->Capture(i, step);
    }));
  }
  return graphs;
}

}  // namespace hyperserve
