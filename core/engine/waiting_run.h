// What the fused runs of flows and of images, and the run of captured tables, share: segments wait,
// and the next Advance solves all of them to their ends, in launches between which cancellation is
// noticed. Private to core/engine.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_faults.h"
#include "core/engine/engine.h"
#include "core/engine/torch_scope.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// Program: FusedFlow, FusedConv or TableGraph, which solves rows on the device.
template <class Program>
class WaitingRun : public Run {
 public:
  // Keeps a copy of the spec. All work goes to `stream`.
  WaitingRun(const BatchSpec& spec, StreamLease stream)
      : spec_(spec),
        stream_(std::move(stream)),
        stages_(OptionsOf(spec).tableau.solution_stages()) {}

  // Launches are cut to their time, so a fused run has no bucket that could be full.
  int64_t room() const override { return std::numeric_limits<int64_t>::max(); }

  // Always solves to the end, whatever the number of evaluations: true, or an error after which
  // neither waiting nor finished segments are left.
  absl::StatusOr<bool> Advance(int64_t, const std::function<bool()>& cancelled) final {
    const absl::Status solved = CatchDeviceFaults("solving a batch", [&] {
      const TorchScope scope(*stream_);
      queued_ = 0;
      return waiting_.empty() ? absl::OkStatus() : SolveWaiting(cancelled);
    });
    waiting_.clear();
    if (solved.ok()) return true;
    finished_.clear();
    return solved;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() final {
    return std::exchange(finished_, {});
  }

  void Drop(Ticket ticket) final {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.ticket == ticket; });
    std::erase_if(finished_, [&](const SolvedSegment& one) { return one.ticket == ticket; });
  }

 protected:
  struct Waiting {
    Ticket ticket;
    Segment segment;
    std::shared_ptr<const Program> program;
  };

  // Solves all that waits, at least one segment, and puts the results into finished_.
  virtual absl::Status SolveWaiting(const std::function<bool()>& cancelled) = 0;

  // Takes a segment that the derived class has checked; it keeps the program alive until its solve
  // has ended.
  Ticket Await(const Segment& segment, std::shared_ptr<const Program> program) {
    waiting_.push_back({.ticket = next_ticket_, .segment = segment, .program = std::move(program)});
    return next_ticket_++;
  }

  bool adaptive() const { return spec_.stepping == Stepping::kErrorControlled; }
  bool learned() const { return spec_.method.method == Method::kLearned; }
  // Of one of its rows: evaluations of f and of g. Precondition: not adaptive.
  int64_t EvaluationsOf(const Segment& segment) const {
    return learned() ? StepsOf(segment) : StepsOf(segment) * stages_;
  }
  int64_t CorrectionsOf(const Segment& segment) const {
    if (spec_.correction == nullptr) return 0;
    if (!learned()) return StepsOf(segment);
    return spec_.correction->table(StepsOf(segment))->spec->net.empty() ? 0 : 1;
  }

  // Counts work that is about to start. Lets the device finish first where it could not do this
  // work too within `limit`, that of a launch.
  void MakeRoom(int64_t work, int64_t limit) {
    if (queued_ + work > limit) {
      WaitForDevice();
      queued_ = 0;
    }
    queued_ += work;
  }
  // Blocks until the stream has done its work. On the CPU, where tests run, work is done when it
  // was started.
  void WaitForDevice() const {
    if (stream_->device().is_cuda()) stream_->synchronize();
  }
  // Asks before a launch.
  absl::Status CheckCancelled(const std::function<bool()>& cancelled) const {
    if (!cancelled || !cancelled()) return absl::OkStatus();
    WaitForDevice();  // the weights may go with this run
    return absl::CancelledError("the batch was cancelled");
  }
  // `fits`: kernels::RowFit of so many rows, on the device, for which it waits.
  bool AnyUnfinished(uint8_t* fits, int64_t count) const {
    const auto bytes = at::TensorOptions(stream_->device()).dtype(at::kByte);
    return at::from_blob(fits, {count}, bytes).eq(kernels::kRowUnfinished).any().item<bool>();
  }

  const BatchSpec spec_;
  const StreamLease stream_;
  const int64_t stages_;  // evaluations of f of a step; 0: learned
  std::vector<Waiting> waiting_;
  std::vector<SolvedSegment> finished_;

 private:
  Ticket next_ticket_ = 0;
  int64_t queued_ = 0;  // work that was started since the device was last waited for
};

}  // namespace hyperserve
