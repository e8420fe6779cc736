#include "core/engine/fused/fused_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_faults.h"
#include "core/engine/fused/fused_flows.h"
#include "core/engine/fused/solve_again.h"
#include "core/engine/paired_run.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/waiting_run.h"
#include "core/io/tensor.h"
#include "core/kernels/flow/flow_model.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// The kernel solves groups of so many rows.
constexpr int64_t kGroupRows = 64;

// What the kernel says of some rows, on the host. Log-densities and evaluations: of the plans that
// have them, else empty.
struct Ends {
  std::span<const float> states, log_densities;
  std::span<const int32_t> evaluations;
  std::span<const uint8_t> fits;  // kernels::RowFit

  Ends Rows(size_t begin, size_t count) const {
    const auto part = [&](const auto& all) {
      const size_t of_row = all.size() / fits.size();
      return all.subspan(begin * of_row, count * of_row);
    };
    return {part(states), part(log_densities), part(evaluations), part(fits)};
  }
};

// Infinities and what is not a number have all bits of the exponent set. A loop that the compiler
// vectorises: there are millions of numbers.
bool AllFinite(std::span<const float> floats) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (const float value : floats) {
    finite &= (std::bit_cast<uint32_t>(value) & kExponent) != kExponent;
  }
  return finite;
}

class FusedRun final : public WaitingRun<FusedFlow> {
 public:
  FusedRun(const BatchSpec& spec, StreamLease stream, FindFusedFlow find)
      : WaitingRun(spec, std::move(stream)),
        find_(std::move(find)),
        costs_(spec),
        passes_(spec.log_density == LogDensity::kNone ? 1 : 1 + kernels::kFlowTangents) {}

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    const int64_t steps_max = kLaunchEvaluationsMax / (std::max<int64_t>(stages_, 1) * passes_);
    if (!adaptive() && !learned() && StepsOf(segment) > steps_max) {
      return absl::InvalidArgumentError(
          absl::StrCat(StepsOf(segment), " steps, more than ", steps_max,
                       ", the most of this method in tier fast; ask for tier exact"));
    }
    HS_ASSIGN_OR_RETURN(std::shared_ptr<const FusedFlow> flow,
                        find_(learned() ? StepsOf(segment) : 0));
    return Await(segment, std::move(flow));
  }

 private:
  int64_t dimensions() const { return spec_.model->state_elements(); }
  int64_t densities() const { return spec_.log_density == LogDensity::kNone ? 0 : 1; }
  absl::Status SolveWaiting(const std::function<bool()>& cancelled) override {
    std::vector<Segment> segments;
    int64_t count = 0;
    for (const Waiting& one : waiting_) {
      segments.push_back(one.segment);
      count += one.segment.rows;
    }
    const at::Device device = stream_->device();
    at::Tensor z0;
    if (spec_.entry != Entry::kNoise) {
      z0 = ReadRows(spec_, segments, at::kFloat, device).contiguous();
    }
    // The states, a number more of each row where the plan has one, and how the rows fit: one copy
    // to the host.
    const int64_t more = adaptive() ? 1 : densities();
    const int64_t more_at = count * dimensions(), fits_at = (count * (dimensions() + more)) * 4;
    const at::Tensor ends =
        at::empty({fits_at + count}, at::TensorOptions(device).dtype(at::kByte));
    auto* numbers = static_cast<float*>(ends.data_ptr());
    kernels::FlowRows rows{.z0 = z0.defined() ? z0.const_data_ptr<float>() : nullptr,
                           .z1 = numbers,
                           .log_density = numbers + more_at,
                           .evaluations = reinterpret_cast<int32_t*>(numbers + more_at),
                           .unfit = ends.data_ptr<uint8_t>() + fits_at};
    for (const Waiting& one : waiting_) {
      HS_RETURN_IF_ERROR(adaptive() ? LaunchAdaptive(one, cancelled, rows)
                                    : LaunchFixed(one, cancelled, rows));
    }
    return Finish(OnHost(ends), count, cancelled);
  }

  absl::Status Finish(const at::Tensor& ends, int64_t count,
                      const std::function<bool()>& cancelled) {
    const auto rows = static_cast<size_t>(count), size = static_cast<size_t>(dimensions());
    const auto* numbers = static_cast<const float*>(ends.const_data_ptr());
    const float* more = numbers + rows * size;
    const size_t densities_count = rows * static_cast<size_t>(densities());
    const size_t evaluations_count = adaptive() ? rows : 0;
    const Ends all{
        .states = {numbers, rows * size},
        .log_densities = {more, densities_count},
        .evaluations = {reinterpret_cast<const int32_t*>(more), evaluations_count},
        .fits = {reinterpret_cast<const uint8_t*>(more + densities_count + evaluations_count),
                 rows}};
    size_t first = 0;
    for (const Waiting& one : waiting_) {
      const auto many = static_cast<size_t>(one.segment.rows);
      HS_ASSIGN_OR_RETURN(BatchResult result,
                          ResultOf(one.segment, all.Rows(first, many), cancelled));
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
    WaitForDevice();
    return pinned;
  }

  // Solves one segment; moves the pointers in `rows` behind it.
  absl::Status LaunchFixed(const Waiting& one, const std::function<bool()>& cancelled,
                           kernels::FlowRows& rows) {
    const Segment& segment = one.segment;
    const kernels::FlowPlan plan = FlowPlanOf(spec_, std::get<FixedSteps>(segment.control));
    const int64_t evaluations = std::max<int64_t>(EvaluationsOf(segment), 1) * passes_;
    const int64_t at_once = LaunchRows(evaluations);
    for (int64_t begin = 0; begin < segment.rows; begin += at_once) {
      rows.count = std::min(at_once, segment.rows - begin);
      MakeRoom(std::max(rows.count, kLaunchRowsLeast) * evaluations, kLaunchRowEvaluations);
      HS_RETURN_IF_ERROR(CheckCancelled(cancelled));
      Start(one, begin, plan, rows);
      Skip(rows);
    }
    return absl::OkStatus();
  }

  // A launch that ended before its rows did is made again with fewer.
  absl::Status LaunchAdaptive(const Waiting& one, const std::function<bool()>& cancelled,
                              kernels::FlowRows& rows) {
    const Segment& segment = one.segment;
    const kernels::FlowAdaptivePlan plan =
        FlowPlanOf(spec_, std::get<ErrorControl>(segment.control));
    const int64_t launches =
        segment.rows / std::max(one.program->RowsAtOnce(plan), kLaunchRowsLeast) + 1;
    int64_t at_once = (segment.rows + launches - 1) / launches;
    for (int64_t begin = 0; begin < segment.rows;) {
      rows.count = std::min(at_once, segment.rows - begin);
      HS_RETURN_IF_ERROR(CheckCancelled(cancelled));
      Start(one, begin, plan, rows);
      if (rows.count > kLaunchRowsLeast && AnyUnfinished(rows.unfit, rows.count)) {
        at_once = std::max(kLaunchRowsLeast, rows.count / 2);
        continue;
      }
      begin += rows.count;
      Skip(rows);
    }
    return absl::OkStatus();
  }

  static void Start(const Waiting& one, int64_t begin, const kernels::FlowTask& task,
                    kernels::FlowRows& rows) {
    rows.seed = one.segment.seed;
    rows.first_row = one.segment.first_row + static_cast<uint64_t>(begin);
    one.program->Solve(task, rows);
  }

  void Skip(kernels::FlowRows& rows) const {
    if (rows.z0 != nullptr) rows.z0 += rows.count * dimensions();
    rows.z1 += rows.count * dimensions();
    rows.log_density += rows.count * densities();
    rows.evaluations += rows.count;
    rows.unfit += rows.count;
  }

  absl::StatusOr<BatchResult> ResultOf(const Segment& segment, const Ends& ends,
                                       const std::function<bool()>& cancelled) const {
    const auto count = static_cast<size_t>(segment.rows);
    BatchResult result;
    result.status.assign(count, RowStatus::kConverged);
    if (spec_.want_state) {
      result.state = HostTensor::CopyOf({.dtype = Dtype::kF32,
                                         .shape = {segment.rows, dimensions()},
                                         .bytes = std::as_bytes(ends.states)});
    }
    if (spec_.want_depth) result.depth.assign(count, OptionsOf(spec_).s1);
    if (densities() > 0) {
      result.log_density = HostTensor::Zeros(Dtype::kF64, {segment.rows});
      std::ranges::copy(ends.log_densities, result.log_density.as<double>().begin());
    }
    if (adaptive()) {
      for (const int32_t nfe : ends.evaluations) costs_.Append(nfe, 0, result);
    } else {
      costs_.Append(EvaluationsOf(segment), CorrectionsOf(segment), result);
      result.nfe.resize(count, result.nfe.front());
      result.correction_evaluations.resize(count, result.correction_evaluations.front());
      result.macs.resize(count, result.macs.front());
    }
    result.bucket = (segment.rows + kGroupRows - 1) / kGroupRows * kGroupRows;
    const UnfitRows unfit = UnfitOf(ends);
    HS_RETURN_IF_ERROR(SolveAgain(spec_, stream_, segment, unfit.rows, cancelled, result));
    // Their states stay: they are those of rows whose densities nobody asks for.
    HS_RETURN_IF_ERROR(
        SolveAgain(DensityAlone(spec_), stream_, segment, unfit.densities, cancelled, result));
    return result;
  }

  // Places that ascend.
  struct UnfitRows {
    std::vector<int64_t> rows;       // that the kernel did not solve, or whose end is not finite
    std::vector<int64_t> densities;  // of rows that fit, but for a density that is not finite
  };
  static UnfitRows UnfitOf(const Ends& ends) {
    UnfitRows unfit;
    if (AllFinite(ends.states) && AllFinite(ends.log_densities) &&
        std::ranges::count(ends.fits, kernels::kRowFits) == std::ssize(ends.fits)) {
      return unfit;
    }
    for (size_t row = 0; row < ends.fits.size(); ++row) {
      const Ends one = ends.Rows(row, 1);
      const bool fits = one.fits.front() == kernels::kRowFits && AllFinite(one.states);
      if (fits && AllFinite(one.log_densities)) continue;
      (fits ? unfit.densities : unfit.rows).push_back(static_cast<int64_t>(row));
    }
    return unfit;
  }

  const FindFusedFlow find_;
  const RowCosts costs_;
  const int64_t passes_;  // products of an evaluation, in those of a value alone
};

}  // namespace

int64_t LaunchRows(int64_t evaluations) {
  return std::max(kLaunchRowsLeast, kLaunchRowEvaluations / evaluations);
}

std::unique_ptr<Run> MakeFusedRun(const BatchSpec& spec, StreamLease stream, FindFusedFlow find) {
  return std::make_unique<FusedRun>(spec, std::move(stream), std::move(find));
}

}  // namespace hyperserve
