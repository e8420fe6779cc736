#include "core/engine/fused/fused_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/fused/fused_flows.h"
#include "core/engine/fused/solve_again.h"
#include "core/engine/readable/batch_rows.h"
#include "core/io/tensor.h"
#include "core/kernels/flow/flow_model.h"
#include "core/model/net/model.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// The kernel solves groups of so many rows.
constexpr int64_t kGroupRows = 64;

int64_t StepsOf(const Segment& segment) { return std::get<FixedSteps>(segment.control).steps; }

// Infinities and what is not a number have all bits of the exponent set. A loop that the compiler
// vectorises: there are millions of numbers.
bool AllFinite(const TensorView& floats) {
  constexpr uint32_t kExponent = 0x7f800000;
  const auto* bits = reinterpret_cast<const uint32_t*>(floats.bytes.data());
  bool finite = true;
  for (size_t i = 0; i < floats.bytes.size() / sizeof(uint32_t); ++i) {
    finite &= (bits[i] & kExponent) != kExponent;
  }
  return finite;
}

class FusedRun final : public Run {
 public:
  FusedRun(const BatchSpec& spec, StreamLease stream, std::shared_ptr<const FusedFlow> flow)
      : spec_(spec),
        stream_(std::move(stream)),
        flow_(std::move(flow)),
        stages_(OptionsOf(spec).tableau.solution_stages()) {}

  int64_t room() const override { return std::numeric_limits<int64_t>::max(); }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    const int64_t steps_max = kLaunchEvaluationsMax / stages_;
    if (StepsOf(segment) > steps_max) {
      return absl::InvalidArgumentError(
          absl::StrCat(StepsOf(segment), " steps, more than ", steps_max,
                       ", the most of this method in tier fast; ask for tier exact"));
    }
    waiting_.push_back({.ticket = next_ticket_, .segment = segment});
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t, const std::function<bool()>& cancelled) override {
    const absl::Status solved = CatchExceptions("solving a batch", [&] {
      const TorchScope scope(*stream_);
      return SolveWaiting(cancelled);
    });
    waiting_.clear();
    if (solved.ok()) return true;
    finished_.clear();
    return solved;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    return std::exchange(finished_, {});
  }

  void Drop(Ticket ticket) override {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.ticket == ticket; });
    std::erase_if(finished_, [&](const SolvedSegment& one) { return one.ticket == ticket; });
  }

 private:
  struct Waiting {
    Ticket ticket;
    Segment segment;
  };

  int64_t dimensions() const { return spec_.model->state_elements(); }

  absl::Status SolveWaiting(const std::function<bool()>& cancelled) {
    if (waiting_.empty()) return absl::OkStatus();
    std::vector<Segment> segments;
    int64_t count = 0;
    for (const Waiting& one : waiting_) {
      segments.push_back(one.segment);
      count += one.segment.rows;
    }
    const at::Device device = stream_->device();
    queued_ = 0;
    at::Tensor z0;
    if (spec_.entry != Entry::kNoise) {
      z0 = ReadRows(spec_, segments, at::kFloat, device).contiguous();
    }
    // The states, then the marks of rows that do not fit: one copy to the host.
    const int64_t state_bytes = count * dimensions() * static_cast<int64_t>(sizeof(float));
    const at::Tensor ends =
        at::empty({state_bytes + count}, at::TensorOptions(device).dtype(at::kByte));
    kernels::FlowRows rows{.z0 = z0.defined() ? z0.const_data_ptr<float>() : nullptr,
                           .z1 = static_cast<float*>(ends.data_ptr()),
                           .unfit = ends.data_ptr<uint8_t>() + state_bytes};
    for (const Segment& segment : segments) {
      HS_RETURN_IF_ERROR(Launch(segment, cancelled, rows));
    }
    const at::Tensor here = OnHost(ends);
    const auto* bytes = reinterpret_cast<const std::byte*>(here.const_data_ptr<uint8_t>());
    const TensorView states{.dtype = Dtype::kF32,
                            .shape = {count, dimensions()},
                            .bytes = {bytes, static_cast<size_t>(state_bytes)}};
    const TensorView marks{.dtype = Dtype::kU8,
                           .shape = {count},
                           .bytes = {bytes + state_bytes, static_cast<size_t>(count)}};
    int64_t first = 0;
    for (const Waiting& one : waiting_) {
      const int64_t many = one.segment.rows;
      HS_ASSIGN_OR_RETURN(BatchResult result, Finish(one.segment, RowsOf(states, first, many),
                                                     RowsOf(marks, first, many), cancelled));
      finished_.push_back({.ticket = one.ticket, .rows = std::move(result)});
      first += many;
    }
    return absl::OkStatus();
  }

  // Waits for the device. LibTorch keeps pinned memory for the next time.
  at::Tensor OnHost(const at::Tensor& bytes) const {
    if (!bytes.is_cuda()) return bytes;
    at::Tensor pinned = at::empty(bytes.sizes(), at::TensorOptions(at::kByte).pinned_memory(true));
    pinned.copy_(bytes, /*non_blocking=*/true);
    Wait();
    return pinned;
  }

  // Lets the device finish first where it could not do this work within the time of a launch as
  // well: cancellation is noticed between the two.
  void MakeRoom(int64_t row_evaluations) {
    if (queued_ + row_evaluations > kLaunchRowEvaluations) {
      Wait();
      queued_ = 0;
    }
    queued_ += row_evaluations;
  }

  void Wait() const {
    if (stream_->device().is_cuda()) stream_->synchronize();
  }

  // Solves one segment; moves the pointers in `rows` behind it.
  absl::Status Launch(const Segment& segment, const std::function<bool()>& cancelled,
                      kernels::FlowRows& rows) {
    const kernels::FlowPlan plan = FlowPlanOf(spec_, StepsOf(segment));
    const int64_t evaluations = plan.steps * stages_, at_once = LaunchRows(evaluations);
    rows.seed = segment.seed;
    for (int64_t begin = 0; begin < segment.rows; begin += at_once) {
      rows.count = std::min(at_once, segment.rows - begin);
      MakeRoom(std::max(rows.count, kLaunchRowsLeast) * evaluations);
      if (cancelled && cancelled()) {
        Wait();  // the weights may go with this run
        return absl::CancelledError("the batch was cancelled");
      }
      rows.first_row = segment.first_row + static_cast<uint64_t>(begin);
      flow_->Solve(plan, rows);
      if (rows.z0 != nullptr) rows.z0 += rows.count * dimensions();
      rows.z1 += rows.count * dimensions();
      rows.unfit += rows.count;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BatchResult> Finish(const Segment& segment, const TensorView& states,
                                     const TensorView& unfit,
                                     const std::function<bool()>& cancelled) const {
    const auto count = static_cast<size_t>(segment.rows);
    const int64_t steps = StepsOf(segment);
    const int64_t nfe = steps * stages_;
    const int64_t corrections = spec_.correction == nullptr ? 0 : steps;
    const int64_t macs = nfe * spec_.model->field_macs() +
                         (spec_.correction == nullptr ? 0 : corrections * spec_.correction->macs());
    BatchResult result;
    result.status.assign(count, RowStatus::kConverged);
    if (spec_.want_state) result.state = HostTensor::CopyOf(states);
    if (spec_.want_depth) result.depth.assign(count, OptionsOf(spec_).s1);
    result.nfe.assign(count, static_cast<int32_t>(nfe));
    result.correction_evaluations.assign(count, static_cast<int32_t>(corrections));
    result.macs.assign(count, macs);
    result.bucket = (segment.rows + kGroupRows - 1) / kGroupRows * kGroupRows;
    HS_RETURN_IF_ERROR(
        SolveAgain(spec_, stream_, segment, Unfit(states, unfit), cancelled, result));
    return result;
  }

  // The places of the rows that the kernel could not carry or whose end is not finite.
  std::vector<int64_t> Unfit(const TensorView& states, const TensorView& unfit) const {
    std::vector<int64_t> places;
    if (AllFinite(states) && std::ranges::count(unfit.bytes, std::byte{0}) == RowCount(unfit)) {
      return places;
    }
    const auto* numbers = reinterpret_cast<const float*>(states.bytes.data());
    const auto size = static_cast<size_t>(dimensions());
    for (size_t row = 0; row < unfit.bytes.size(); ++row) {
      const float* of_row = numbers + row * size;
      const bool finite =
          std::all_of(of_row, of_row + size, [](float value) { return std::isfinite(value); });
      if (!finite || unfit.bytes[row] != std::byte{0}) places.push_back(static_cast<int64_t>(row));
    }
    return places;
  }

  // Fixed after construction.
  const BatchSpec spec_;
  const StreamLease stream_;
  const std::shared_ptr<const FusedFlow> flow_;
  const int64_t stages_;  // evaluations of f of a step

  std::vector<Waiting> waiting_;
  std::vector<SolvedSegment> finished_;
  Ticket next_ticket_ = 0;
  int64_t queued_ = 0;  // evaluations of f on rows, started since the last Wait
};

}  // namespace

int64_t LaunchRows(int64_t evaluations) {
  return std::max(kLaunchRowsLeast, kLaunchRowEvaluations / evaluations);
}

std::unique_ptr<Run> MakeFusedRun(const BatchSpec& spec, StreamLease stream,
                                  std::shared_ptr<const FusedFlow> flow) {
  return std::make_unique<FusedRun>(spec, std::move(stream), std::move(flow));
}

}  // namespace hyperserve
