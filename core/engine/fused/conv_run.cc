#include "core/engine/fused/conv_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/device_faults.h"
#include "core/engine/fused/fused_convs.h"
#include "core/engine/fused/solve_again.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/solve_setup.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// Images that are solved again go through the readable engine so many at a time.
constexpr int64_t kAgainRows = 32;

int64_t StepsOf(const Segment& segment) { return std::get<FixedSteps>(segment.control).steps; }

class ConvRun final : public Run {
 public:
  ConvRun(const BatchSpec& spec, StreamLease stream, std::shared_ptr<const FusedConv> conv)
      : spec_(spec),
        stream_(std::move(stream)),
        conv_(std::move(conv)),
        setup_(SetUpSolve(spec, kMapRows, stream_->device())),
        stages_(ConvPlanOf(spec, 1).tableau.solution_stages()),
        step_macs_(stages_ * spec.model->field_macs() +
                   (spec.correction == nullptr ? 0 : spec.correction->macs())) {}

  int64_t room() const override { return std::numeric_limits<int64_t>::max(); }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    const int64_t steps_max = kLaunchRowMacsMax / std::max<int64_t>(step_macs_, 1);
    if (StepsOf(segment) > steps_max) {
      return absl::InvalidArgumentError(
          absl::StrCat(StepsOf(segment), " steps, more than ", steps_max,
                       ", the most of this model in tier fast; ask for tier exact"));
    }
    waiting_.push_back({.ticket = next_ticket_, .segment = segment});
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t, const std::function<bool()>& cancelled) override {
    const absl::Status solved = CatchDeviceFaults("solving a batch", [&] {
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
  // Of all rows that wait, in order.
  struct Ends {
    at::Tensor state, unfit, outputs;
  };

  absl::Status SolveWaiting(const std::function<bool()>& cancelled) {
    if (waiting_.empty()) return absl::OkStatus();
    std::vector<Segment> segments;
    for (const Waiting& one : waiting_) segments.push_back(one.segment);
    at::Tensor z0 = ReadRows(spec_, segments, at::kFloat, stream_->device());
    if (spec_.entry == Entry::kInput) z0 = Mapped(setup_.stem, z0);
    z0 = z0.contiguous();
    const auto bytes = at::TensorOptions(stream_->device()).dtype(at::kByte);
    Ends ends{.state = at::empty_like(z0), .unfit = at::empty({z0.size(0)}, bytes), .outputs = {}};
    const at::Tensor scratch = at::empty({conv_->ScratchBytes(ConvPlanOf(spec_, 1))}, bytes);
    kernels::ConvRows rows{.z0 = z0.const_data_ptr<float>(),
                           .z1 = ends.state.data_ptr<float>(),
                           .unfit = ends.unfit.data_ptr<uint8_t>(),
                           .scratch = scratch.data_ptr()};
    queued_ = 0;
    for (const Segment& segment : segments) {
      HS_RETURN_IF_ERROR(Launch(segment, cancelled, rows));
    }
    if (spec_.want_outputs) ends.outputs = Mapped(setup_.head, ends.state);
    ends.unfit = ends.unfit.to(at::kCPU);
    int64_t first = 0;
    for (const Waiting& one : waiting_) {
      HS_ASSIGN_OR_RETURN(BatchResult result, Finish(one.segment, first, ends, cancelled));
      finished_.push_back({.ticket = one.ticket, .rows = std::move(result)});
      first += one.segment.rows;
    }
    return absl::OkStatus();
  }

  // Always on kMapRows rows.
  static at::Tensor Mapped(const PaddedMap& map, const at::Tensor& rows) {
    if (map.net.empty()) return rows;
    std::vector<at::Tensor> parts;
    for (int64_t begin = 0; begin < rows.size(0); begin += kMapRows) {
      parts.push_back(map.Apply(rows.narrow(0, begin, std::min(kMapRows, rows.size(0) - begin))));
    }
    return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  }

  // Lets the device finish first where it could not do this work within the time of a launch as
  // well: cancellation is noticed between the two.
  void MakeRoom(int64_t macs) {
    if (queued_ + macs > kLaunchMacs) {
      Wait();
      queued_ = 0;
    }
    queued_ += macs;
  }

  void Wait() const {
    if (stream_->device().is_cuda()) stream_->synchronize();
  }

  // Solves one segment; moves the pointers in `rows` behind it.
  absl::Status Launch(const Segment& segment, const std::function<bool()>& cancelled,
                      kernels::ConvRows& rows) {
    const kernels::ConvPlan plan = ConvPlanOf(spec_, StepsOf(segment));
    const int64_t macs = plan.steps * step_macs_;
    const int64_t at_once = std::max(kLaunchImagesLeast, kLaunchMacs / std::max<int64_t>(macs, 1));
    for (int64_t begin = 0; begin < segment.rows; begin += at_once) {
      rows.count = std::min(at_once, segment.rows - begin);
      MakeRoom(std::max(rows.count, kLaunchImagesLeast) * macs);
      if (cancelled && cancelled()) {
        Wait();  // the weights may go with this run
        return absl::CancelledError("the batch was cancelled");
      }
      conv_->Solve(plan, rows);
      rows.z0 += rows.count * spec_.model->state_elements();
      rows.z1 += rows.count * spec_.model->state_elements();
      rows.unfit += rows.count;
    }
    return absl::OkStatus();
  }

  // The rows from `first` on are those of the segment.
  absl::StatusOr<BatchResult> Finish(const Segment& segment, int64_t first, const Ends& ends,
                                     const std::function<bool()>& cancelled) const {
    BatchResult result;
    result.status.assign(static_cast<size_t>(segment.rows), RowStatus::kConverged);
    if (spec_.want_state) result.state = HostTensorFrom(ends.state.narrow(0, first, segment.rows));
    if (spec_.want_outputs) {
      result.outputs = HostTensorFrom(ends.outputs.narrow(0, first, segment.rows));
    }
    const RowCosts costs(spec_);
    const int64_t steps = StepsOf(segment);
    std::vector<int64_t> unfit;
    for (int64_t row = 0; row < segment.rows; ++row) {
      costs.Append(steps * stages_, spec_.correction == nullptr ? 0 : steps, result);
      if (ends.unfit.const_data_ptr<uint8_t>()[first + row] != 0) unfit.push_back(row);
    }
    result.bucket = segment.rows;
    HS_RETURN_IF_ERROR(SolveAgain(spec_, stream_, segment, unfit, cancelled, result, kAgainRows));
    return result;
  }

  // Fixed after construction.
  const BatchSpec spec_;
  const StreamLease stream_;
  const std::shared_ptr<const FusedConv> conv_;
  const SolveSetup setup_;
  const int64_t stages_;     // evaluations of f of a step
  const int64_t step_macs_;  // of a row

  std::vector<Waiting> waiting_;
  std::vector<SolvedSegment> finished_;
  Ticket next_ticket_ = 0;
  int64_t queued_ = 0;  // multiply-accumulates started since the last Wait
};

}  // namespace

std::unique_ptr<Run> MakeConvRun(const BatchSpec& spec, StreamLease stream,
                                 std::shared_ptr<const FusedConv> conv) {
  return std::make_unique<ConvRun>(spec, std::move(stream), std::move(conv));
}

}  // namespace hyperserve
