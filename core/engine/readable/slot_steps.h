// The rows in the slots of a bucket and their steps: all that a SlotRun has on the device. It knows
// no segments. Not thread-safe; throws as LibTorch does.
//
// A step can be captured (Capture) and then started as a whole (Use): the same operations on the
// same numbers, which stand in fixed places between the steps.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine/captured/captured_work.h"
#include "core/engine/readable/slot_control.h"
#include "core/engine/readable/slot_space.h"
#include "core/engine/readable/tensor_space.h"
#include "core/ode/solve_options.h"
#include "core/ode/space.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Slots [first, first + rows).
struct SlotRange {
  int64_t first = 0, rows = 0;
};

// Rows that stand at s0.
struct SlotStarts {
  at::Tensor z;
  at::Tensor condition;  // [rows, features]; undefined where the model has none
};

// Where some slots of a fixed plan stand.
struct FixedPlace {
  SlotRange slots;
  int64_t step = 0, steps = 1;
};

// The rows of a range as they are now.
struct SlotRows {
  at::Tensor z;         // their last finite states
  at::Tensor progress;  // fixed plans: steps done before the first that failed
  at::Tensor status;    // error control: kChar, a RowStatus or kUnderWay
  at::Tensor nfe;       // error control: kInt
};

inline constexpr int8_t kUnderWay = -1;

// Where the numbers of a bucket's slots stand while their steps are captured ones. Undefined: the
// plan has none.
struct SlotPlaces {
  static constexpr size_t kCount = 17;
  std::array<at::Tensor, kCount> numbers;
  const std::array<at::Tensor, kCount>& All() const { return numbers; }
  PerRow depths, sizes;  // those of the last step of a fixed plan that started here
};

// A step of a bucket that was captured.
struct StepGraph {
  std::shared_ptr<SlotPlaces> places;
  std::unique_ptr<CapturedWork> step;
};

// A SlotRun makes it and calls, for each step, Put for new rows, then BeginFixed or
// BeginControlled, then Evaluate until it is true.
class SlotSteps {
 public:
  // Borrows the options of the space.
  SlotSteps(const TensorSpace::Options* space, SolveOptions options)
      : space_(space), options_(std::move(options)) {}

  // Fixed for the life of the object; it says which of the two Begin functions may be called.
  bool controlled() const { return options_.stepping == Stepping::kErrorControlled; }

  // From now on steps are those of the graph, which nobody else uses meanwhile. Before the first
  // rows. Every Put names the graph's bucket.
  void Use(std::shared_ptr<const StepGraph> graph);

  // New places for the numbers, in memory of that stream. Rows have been put.
  std::shared_ptr<SlotPlaces> MakePlaces(const c10::Stream& stream);
  // A step of all slots on numbers in these places, which have the shapes of MakePlaces. Afterwards
  // only these two may be called. Throws as CaptureLane::Capture.
  using CaptureWork =
      std::function<std::unique_ptr<CapturedWork>(const std::function<void()>& work)>;
  std::shared_ptr<const StepGraph> Capture(std::shared_ptr<SlotPlaces> places,
                                           const CaptureWork& capture);

  // Puts rows into slots of a bucket. Between two steps. Under error control, Begin evaluates f
  // twice for them.
  void Put(const SlotStarts& starts, int64_t first, int64_t bucket, const StepControl& control);

  // Begins a step of all slots. Fixed plans: `places` of all slots that matter.
  void BeginFixed(const std::vector<FixedPlace>& places);
  // Chooses the first steps of the rows that were put since the last step. Slots whose rows have
  // ended take part in the arithmetic and keep their numbers.
  void BeginControlled();
  // Between a Begin and the Evaluate that ends the step; meanwhile nothing may be put.
  bool under_way() const { return under_way_; }
  // Makes one evaluation of f, or a captured step; true when it ends the step.
  bool Evaluate();
  // Forgets a step that is under way.
  void Abandon();
  // Forgets all rows. After an exception nothing else may be called.
  void Clear();

  // Waits for nothing. The tensors stay what they are when later steps go on.
  SlotRows At(const SlotRange& range) const;
  // Under error control: waits for the statuses of all slots.
  std::vector<int8_t> ReadStatuses() const;
  // Moves the rows of these slots to the first slots of a smaller bucket; the others are lost.
  void Keep(const std::vector<int64_t>& slots, int64_t bucket);

 private:
  int64_t slots() const { return z_.defined() ? z_.size(0) : 0; }
  using Slopes = std::vector<at::Tensor>;

  size_t stages() const {
    return static_cast<size_t>(controlled() ? options_.tableau.stages()
                                            : options_.tableau.solution_stages());
  }
  SlotSpace Space() const { return {space_, clock_, z_, condition_}; }
  void PutCondition(const at::Tensor& condition, int64_t first, int64_t bucket);
  void ChooseFirstSteps();
  void EndFixed();
  void EndControlled();
  void StartClock(const PerRow& depths, const PerRow& sizes);
  // Moves the numbers to their places.
  void Settle();
  // The tensors that have one number for each slot.
  std::array<at::Tensor*, SlotPlaces::kCount> PerSlot();

  // Fixed after construction.
  const TensorSpace::Options* const space_;
  const SolveOptions options_;

  at::Tensor z_;
  at::Tensor z_first_;    // hypersolved plans: z(s0)
  at::Tensor condition_;  // of conditional models
  // Fixed plans.
  at::Tensor alive_;     // kBool: every state was finite; undefined before the first step
  at::Tensor progress_;  // kInt, after one step kBool: as in SlotRows; likewise
  // Error control.
  at::Tensor s_, eps_, rtol_, atol_;  // kDouble; s and eps also of captured fixed steps
  at::Tensor steps_left_;             // kInt
  at::Tensor overflows_;              // kInt: steps whose error was not finite
  at::Tensor status_, nfe_;           // as in SlotRows
  at::Tensor fresh_;                  // kBool: waits for its first slope and step size
  at::Tensor first_slope_;
  SlotControllers controllers_;
  bool any_fresh_ = false;

  // Undefined unless steps are captured, or being captured.
  std::shared_ptr<SlotPlaces> places_;
  std::shared_ptr<const StepGraph> graph_;

  // The step that is under way.
  bool under_way_ = false;
  SlotClock clock_;
  at::Tensor s_next_;  // error control
  Slopes slopes_;
};

}  // namespace hyperserve
