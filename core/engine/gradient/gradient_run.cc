#include "core/engine/gradient/gradient_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_faults.h"
#include "core/engine/gradient/plan_tape.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/segment_results.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/readable/tensor_space.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/ode/space.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

class GradientRun final : public Run {
 public:
  GradientRun(const BatchSpec& spec, StreamLease stream, int64_t rows)
      : spec_(spec),
        stream_(std::move(stream)),
        setup_(SetUpSolve(spec_, rows, stream_->device())) {}

  int64_t room() const override {
    return parties_.empty() ? std::numeric_limits<int64_t>::max() : 0;
  }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    if (segment.rows > room()) {
      return absl::ResourceExhaustedError(
          "the run takes no rows before those that are under way have come back");
    }
    waiting_.push_back(segment);
    waiting_tickets_.push_back(next_ticket_);
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t evaluations_max,
                               const std::function<bool()>& cancelled) override {
    using Result = absl::StatusOr<bool>;
    Result done = CatchDeviceFaults("differentiating a batch", [&]() -> Result {
      const RecordingScope scope(*stream_);
      if (!waiting_.empty()) Start();
      for (int64_t i = 0; i < evaluations_max && !parties_.empty(); ++i) {
        if (cancelled && cancelled()) return absl::CancelledError("the batch was cancelled");
        Party& party = parties_.front();
        if (!party.tape.Advance()) continue;
        results_.Take(Ended(party));
        parties_.pop_front();
      }
      return parties_.empty();
    });
    if (!done.ok()) Clear();
    return done;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    return results_.TakeWhole();
  }

  void Drop(Ticket ticket) override {
    const auto waiting = std::ranges::find(waiting_tickets_, ticket);
    if (waiting != waiting_tickets_.end()) {
      waiting_.erase(waiting_.begin() + (waiting - waiting_tickets_.begin()));
      waiting_tickets_.erase(waiting);
      return;
    }
    results_.Forget(ticket);
    if (results_.missing_rows() == 0) parties_.clear();
  }

 private:
  // Rows of one number of steps that go together.
  struct Party {
    int64_t first = 0, rows = 0;  // their numbers in `results_`
    PlanTape tape;
  };

  // Takes the waiting segments in, those of equal steps side by side.
  void Start() {
    std::vector<size_t> order(waiting_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return StepsOf(waiting_[i]); });
    std::vector<Segment> together;
    for (size_t place = 0; place < order.size(); ++place) {
      const Segment& segment = waiting_[order[place]];
      if (!together.empty() && StepsOf(together.front()) != StepsOf(segment)) {
        Begin(std::exchange(together, {}));
      }
      together.push_back(segment);
      results_.Expect(next_row_, {.ticket = waiting_tickets_[order[place]],
                                  .rows = segment.rows,
                                  .bucket = setup_.space.padded(segment.rows)});
      next_row_ += segment.rows;
    }
    Begin(together);
    waiting_.clear();
    waiting_tickets_.clear();
  }

  // Of segments that `results_` expects as its last rows.
  void Begin(const std::vector<Segment>& segments) {
    const at::ScalarType dtype = SolveDtype(spec_);
    const at::Device device = stream_->device();
    TapeStart start{.rows = ReadRows(spec_, segments, dtype, device),
                    .condition = ReadConditions(spec_, segments, dtype, device),
                    .guidance = ReadGuidance(spec_, segments),
                    .cotangent = {},
                    .steps = StepsOf(segments.front())};
    if (spec_.log_density == LogDensity::kNone) {
      start.cotangent = ReadVectors(spec_, segments, dtype, device);
    }
    const int64_t rows = start.rows.size(0);
    parties_.push_back({.first = std::exchange(next_first_, next_first_ + rows),
                        .rows = rows,
                        .tape = PlanTape(&spec_, &setup_, std::move(start))});
  }

  EndedRows Ended(Party& party) const {
    PlanTape::Result rows = party.tape.Take();
    const at::ScalarType dtype = ResultDtype(spec_);
    if (spec_.entry == Entry::kInput) {
      rows.rows = ScaledAsInputs(rows.rows, spec_.model->spec().input);
    }
    const std::vector<bool> pulled = RowsFinite(rows.rows);
    EndedRows ended{.numbers = std::vector<int64_t>(static_cast<size_t>(party.rows)), .result = {}};
    std::iota(ended.numbers.begin(), ended.numbers.end(), party.first);
    BatchResult& result = ended.result;
    result.product = HostTensorFrom(rows.rows.to(dtype));
    if (rows.condition.defined()) {
      result.condition_product = HostTensorFrom(AsConditions(rows.condition.to(dtype)));
    }
    if (spec_.want_state) result.state = HostTensorFrom(rows.end.z.to(dtype));
    if (spec_.log_density != LogDensity::kNone) result.log_density = LogDensities(rows.end);
    for (size_t i = 0; i < pulled.size(); ++i) {
      const bool converged = rows.finite[i] && pulled[i];
      result.status.push_back(converged ? RowStatus::kConverged : RowStatus::kNonFinite);
      AppendCosts(party.tape.counts(static_cast<int64_t>(i)), result);
    }
    return ended;
  }

  // [rows, knots * features] as the rows brought them: with knots [rows, knots, features].
  at::Tensor AsConditions(const at::Tensor& rows) const {
    if (spec_.knots.empty()) return rows;
    return rows.view({rows.size(0), std::ssize(spec_.knots.depths), -1});
  }

  // The way back costs one more pass: weights are constants, so each layer multiplies once.
  void AppendCosts(const PlanTape::Counts& counts, BatchResult& result) const {
    result.nfe.push_back(static_cast<int32_t>(counts.evaluations + counts.evaluations_again));
    result.correction_evaluations.push_back(
        static_cast<int32_t>(counts.corrections + counts.corrections_again));
    int64_t macs =
        2 * (costs_.maps_macs() + costs_.SolveMacs(counts.evaluations, counts.corrections));
    if (counts.evaluations_again > 0) {
      macs += costs_.SolveMacs(counts.evaluations_again, counts.corrections_again);
    }
    result.macs.push_back(macs);
  }

  static HostTensor LogDensities(const TensorSpace::State& end) {
    const PerRow change = RowValues(end.log_density), normal = LogStandardNormal(end.z);
    HostTensor result = HostTensor::Zeros(Dtype::kF64, {static_cast<int64_t>(change.size())});
    for (size_t i = 0; i < change.size(); ++i) result.as<double>()[i] = normal[i] + change[i];
    return result;
  }

  void Clear() {
    parties_.clear();
    results_ = SegmentResults();
    waiting_.clear();
    waiting_tickets_.clear();
    next_row_ = next_first_ = 0;
  }

  // Fixed after construction.
  const BatchSpec spec_;
  const StreamLease stream_;
  const SolveSetup setup_;
  const RowCosts costs_{spec_};

  std::vector<Segment> waiting_;
  std::vector<Ticket> waiting_tickets_;
  Ticket next_ticket_ = 0;
  std::deque<Party> parties_;
  int64_t next_row_ = 0;    // the number of the next row that is expected
  int64_t next_first_ = 0;  // and of the next party
  SegmentResults results_;
};

}  // namespace

std::unique_ptr<Run> MakeGradientRun(const BatchSpec& spec, StreamLease stream, int64_t rows) {
  return std::make_unique<GradientRun>(spec, std::move(stream), rows);
}

}  // namespace hyperserve
