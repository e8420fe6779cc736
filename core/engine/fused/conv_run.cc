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
#include "core/engine/choose_engine.h"
#include "core/engine/device_faults.h"
#include "core/engine/fused/conv_model.h"
#include "core/engine/fused/fused_convs.h"
#include "core/engine/fused/solve_again.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/waiting_run.h"
#include "core/io/tensor.h"
#include "core/kernels/conv/conv_model.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// Images that are solved again go through the readable engine so many at a time.
constexpr int64_t kAgainRows = 32;

class ConvRun final : public WaitingRun<FusedConv> {
 public:
  ConvRun(const BatchSpec& spec, StreamLease stream, FindFusedConv find)
      : WaitingRun(spec, std::move(stream)),
        find_(std::move(find)),
        setup_(SetUpSolve(spec, kMapRows, stream_->device())) {}

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    HS_RETURN_IF_ERROR(adaptive() ? CheckTolerance(segment) : CheckCost(segment));
    HS_ASSIGN_OR_RETURN(std::shared_ptr<const FusedConv> conv,
                        find_(learned() ? StepsOf(segment) : 0));
    return Await(segment, std::move(conv));
  }

 private:
  // Of all rows that wait, in order.
  struct Ends {
    at::Tensor state, unfit, evaluations, outputs;
  };

  int64_t MacsOf(const Segment& segment) const {
    const Shape& state = spec_.model->state_shape();
    const int64_t of_field =
        EvaluationsOf(segment) * FusedConvMacs(spec_.model->spec().field, state);
    if (spec_.correction == nullptr) return of_field;
    if (learned()) return of_field + spec_.correction->table(StepsOf(segment))->macs;
    return of_field + FusedConvMacs(spec_.correction->spec().net, state) * CorrectionsOf(segment);
  }

  absl::Status CheckCost(const Segment& segment) const {
    if (MacsOf(segment) <= kLaunchRowMacsMax) return absl::OkStatus();
    const int64_t step_macs = std::max<int64_t>(MacsOf(segment) / StepsOf(segment), 1);
    return absl::InvalidArgumentError(
        absl::StrCat(StepsOf(segment), " steps, more than ", kLaunchRowMacsMax / step_macs,
                     ", the most of this model in tier fast; ask for tier exact"));
  }

  static absl::Status CheckTolerance(const Segment& segment) {
    const double atol = std::get<ErrorControl>(segment.control).atol;
    if (atol >= kFastToleranceMin) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("an absolute tolerance of ", atol, ", below ", kFastToleranceMin,
                     ", the least of this model in tier fast; ask for tier exact"));
  }

  absl::Status SolveWaiting(const std::function<bool()>& cancelled) override {
    std::vector<Segment> segments;
    for (const Waiting& one : waiting_) segments.push_back(one.segment);
    at::Tensor z0 = ReadRows(spec_, segments, at::kFloat, stream_->device());
    if (spec_.entry == Entry::kInput) z0 = Mapped(setup_.stem, z0);
    z0 = z0.contiguous();
    const auto bytes = at::TensorOptions(stream_->device()).dtype(at::kByte);
    Ends ends{.state = at::empty_like(z0),
              .unfit = at::empty({z0.size(0)}, bytes),
              .evaluations = at::empty({z0.size(0)}, bytes.dtype(at::kInt)),
              .outputs = {}};
    int64_t scratch_bytes = 0;
    for (const Waiting& one : waiting_) {
      scratch_bytes = std::max(scratch_bytes, one.program->ScratchBytes(TaskOf(one)));
    }
    const at::Tensor scratch = at::empty({scratch_bytes}, bytes);
    kernels::ConvRows rows{.z0 = z0.const_data_ptr<float>(),
                           .z1 = ends.state.data_ptr<float>(),
                           .unfit = ends.unfit.data_ptr<uint8_t>(),
                           .evaluations = ends.evaluations.data_ptr<int32_t>(),
                           .scratch = scratch.data_ptr()};
    for (const Waiting& one : waiting_) {
      HS_RETURN_IF_ERROR(adaptive() ? LaunchAdaptive(one, cancelled, rows)
                                    : LaunchFixed(one, cancelled, rows));
    }
    if (spec_.want_outputs) ends.outputs = Mapped(setup_.head, ends.state);
    ends.unfit = ends.unfit.to(at::kCPU);
    if (adaptive()) ends.evaluations = ends.evaluations.to(at::kCPU);
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

  kernels::ConvTask TaskOf(const Waiting& one) const {
    return ConvTaskOf(spec_, one.segment.control);
  }

  // Solves one segment; moves the pointers in `rows` behind it.
  absl::Status LaunchFixed(const Waiting& one, const std::function<bool()>& cancelled,
                           kernels::ConvRows& rows) {
    const kernels::ConvTask task = TaskOf(one);
    const int64_t macs = std::max<int64_t>(MacsOf(one.segment), 1);
    const int64_t at_once = std::max(kLaunchImagesLeast, kLaunchMacs / macs);
    for (int64_t begin = 0; begin < one.segment.rows; begin += at_once) {
      rows.count = std::min(at_once, one.segment.rows - begin);
      MakeRoom(std::max(rows.count, kLaunchImagesLeast) * macs, kLaunchMacs);
      HS_RETURN_IF_ERROR(CheckCancelled(cancelled));
      one.program->Solve(task, rows);
      Skip(rows);
    }
    return absl::OkStatus();
  }

  // A launch that ended before its rows did is made again with as many as are solved at once.
  absl::Status LaunchAdaptive(const Waiting& one, const std::function<bool()>& cancelled,
                              kernels::ConvRows& rows) {
    const kernels::ConvTask task = TaskOf(one);
    const int64_t least = one.program->RowsAtOnce();
    int64_t at_once = least * kAdaptiveRowsEach;
    for (int64_t begin = 0; begin < one.segment.rows;) {
      rows.count = std::min(at_once, one.segment.rows - begin);
      HS_RETURN_IF_ERROR(CheckCancelled(cancelled));
      one.program->Solve(task, rows);
      if (rows.count > least && AnyUnfinished(rows.unfit, rows.count)) {
        at_once = least;
        continue;
      }
      begin += rows.count;
      Skip(rows);
    }
    return absl::OkStatus();
  }

  void Skip(kernels::ConvRows& rows) const {
    rows.z0 += rows.count * spec_.model->state_elements();
    rows.z1 += rows.count * spec_.model->state_elements();
    rows.unfit += rows.count;
    rows.evaluations += rows.count;
  }

  // The rows from `first` on are those of the segment.
  absl::StatusOr<BatchResult> Finish(const Segment& segment, int64_t first, const Ends& ends,
                                     const std::function<bool()>& cancelled) const {
    BatchResult result;
    result.status.assign(static_cast<size_t>(segment.rows), RowStatus::kConverged);
    if (spec_.want_state) result.state = HostTensorFrom(ends.state.narrow(0, first, segment.rows));
    if (spec_.want_depth) {
      result.depth.assign(static_cast<size_t>(segment.rows), OptionsOf(spec_).s1);
    }
    if (spec_.want_outputs) {
      result.outputs = HostTensorFrom(ends.outputs.narrow(0, first, segment.rows));
    }
    const RowCosts costs(spec_);
    std::vector<int64_t> unfit;
    for (int64_t row = first; row < first + segment.rows; ++row) {
      if (adaptive()) {
        costs.Append(ends.evaluations.const_data_ptr<int32_t>()[row], 0, result);
      } else {
        costs.Append(EvaluationsOf(segment), CorrectionsOf(segment), result);
      }
      if (ends.unfit.const_data_ptr<uint8_t>()[row] != kernels::kRowFits) {
        unfit.push_back(row - first);
      }
    }
    result.bucket = segment.rows;
    HS_RETURN_IF_ERROR(SolveAgain(spec_, stream_, segment, unfit, cancelled, result, kAgainRows));
    return result;
  }

  const FindFusedConv find_;
  const SolveSetup setup_;
};

}  // namespace

std::unique_ptr<Run> MakeConvRun(const BatchSpec& spec, StreamLease stream, FindFusedConv find) {
  return std::make_unique<ConvRun>(spec, std::move(stream), std::move(find));
}

}  // namespace hyperserve
