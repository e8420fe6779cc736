#include "core/engine/readable/slot_run.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_faults.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/slot_steps.h"
#include "core/engine/readable/solve_setup.h"
#include "core/io/tensor.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"
#include "core/ode/solve_options.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {
namespace {

// Fewer rows gain nothing from a smaller bucket.
constexpr int64_t kBucketWorthLeaving = 1024;
// Steps of a fixed plan that the host starts before it looks how far the device is: it is at most
// twice as many ahead, which bounds what a cancelled run goes on to do.
constexpr int kStepsAhead = 16;

class SlotRun final : public Run {
 public:
  SlotRun(const BatchSpec& spec, StreamLease stream, int64_t rows,
          std::shared_ptr<const StepGraph> graph)
      : spec_(spec),
        stream_(std::move(stream)),
        setup_(SetUpSolve(spec_, rows, stream_->device())),
        bucket_(setup_.bucket),
        steps_(&setup_.space.options(), OptionsOf(spec_)) {
    if (graph != nullptr) steps_.Use(std::move(graph));
  }

  // The largest hole, since the rows of a segment stand side by side.
  int64_t room() const override {
    if (compacted()) return 0;
    int64_t largest = 0;
    ForEachHole([&](const SlotRange& hole) { largest = std::max(largest, hole.rows); });
    return largest;
  }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    if (segment.rows > room()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the run has room for ", room(), " more rows, not for ", segment.rows));
    }
    std::optional<SlotRange> best;
    ForEachHole([&](const SlotRange& hole) {
      if (hole.rows >= segment.rows && (!best || hole.rows < best->rows)) best = hole;
    });
    stays_.push_back({.ticket = next_ticket_,
                      .segment = segment,
                      .slots = {.first = best->first, .rows = segment.rows}});
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t evaluations_max,
                               const std::function<bool()>& cancelled) override {
    absl::StatusOr<bool> done = CatchDeviceFaults("solving a batch", [&]() -> absl::StatusOr<bool> {
      const TorchScope scope(*stream_);
      for (int64_t i = 0; i < evaluations_max && !stays_.empty(); ++i) {
        if (cancelled && cancelled()) return absl::CancelledError("the batch was cancelled");
        if (!steps_.under_way()) BeginStep();
        if (steps_.Evaluate()) EndStep();
      }
      return stays_.empty();
    });
    if (!done.ok()) Clear();
    return done;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    using Result = absl::StatusOr<std::vector<SolvedSegment>>;
    Result finished = CatchDeviceFaults("finishing a batch", [&]() -> Result {
      std::vector<SolvedSegment> solved;
      if (finished_.empty()) return solved;
      const TorchScope scope(*stream_);
      for (const Finished& one : std::exchange(finished_, {})) {
        solved.push_back({.ticket = one.ticket, .rows = ResultOf(one)});
      }
      return solved;
    });
    if (!finished.ok()) Clear();
    return finished;
  }

  void Drop(Ticket ticket) override {
    std::erase_if(stays_, [&](const Stay& stay) { return stay.ticket == ticket; });
    std::erase_if(finished_, [&](const Finished& one) { return one.ticket == ticket; });
    if (stays_.empty()) Empty();
  }

 private:
  // A segment in its slots.
  struct Stay {
    Ticket ticket = 0;
    Segment segment;
    SlotRange slots;
    int64_t bucket = 0;  // 0: its rows wait for the next step
    int64_t step = 0;    // fixed plans: steps done
  };
  // Rows of the one segment of a run under error control that ended before it moved to a smaller
  // bucket.
  struct Parked {
    SlotRows rows;
    std::vector<int64_t> places;  // in the segment
  };
  struct Finished {
    Ticket ticket = 0;
    int64_t bucket = 0, steps = 0;
    SlotRows rows;
  };

  bool compacted() const { return !parked_.empty(); }

  // Slots that no segment holds, as ranges.
  template <class Function>
  void ForEachHole(const Function& function) const {
    std::vector<SlotRange> taken;
    for (const Stay& stay : stays_) taken.push_back(stay.slots);
    std::ranges::sort(taken, {}, &SlotRange::first);
    taken.push_back({.first = bucket_, .rows = 0});
    int64_t begin = 0;
    for (const SlotRange& range : taken) {
      if (range.first > begin) function(SlotRange{.first = begin, .rows = range.first - begin});
      begin = range.first + range.rows;
    }
  }

  // Forgets the step under way and a smaller bucket. Precondition: no segment is here.
  void Empty() {
    steps_.Abandon();
    parked_.clear();
    bucket_ = setup_.bucket;
  }

  void Clear() {
    stays_.clear();
    finished_.clear();
    steps_.Clear();
    Empty();
  }

  // After a step of a fixed plan, which waits for nothing.
  void StayNear() {
    if (++steps_ahead_ < kStepsAhead || !stream_->device().is_cuda()) return;
    if (mark_.has_value()) {
      mark_->synchronize();
    } else {
      mark_.emplace(stream_->device().type());
    }
    mark_->record(*stream_);
    steps_ahead_ = 0;
  }

  void BeginStep() {
    PutArrivals();
    if (steps_.controlled()) return steps_.BeginControlled();
    std::vector<FixedPlace> places;
    for (const Stay& stay : stays_) {
      places.push_back({.slots = stay.slots, .step = stay.step, .steps = StepsOf(stay.segment)});
    }
    steps_.BeginFixed(places);
  }

  // The rows that wait take their slots, after the input map, which takes all of them at once.
  void PutArrivals() {
    std::vector<Segment> segments;
    for (const Stay& stay : stays_) {
      if (stay.bucket == 0) segments.push_back(stay.segment);
    }
    if (segments.empty()) return;
    at::Tensor z0 = ReadRows(spec_, segments, SolveDtype(spec_), stream_->device());
    const at::Tensor conditions =
        ReadConditions(spec_, segments, SolveDtype(spec_), stream_->device());
    if (spec_.entry == Entry::kInput) z0 = setup_.stem.Apply(z0);
    int64_t begin = 0;
    for (Stay& stay : stays_) {
      if (stay.bucket != 0) continue;
      stay.bucket = bucket_;
      const auto own = [&](const at::Tensor& all) {
        return all.defined() ? all.narrow(0, begin, stay.slots.rows) : all;
      };
      steps_.Put({.z = own(z0), .condition = own(conditions)}, stay.slots.first, bucket_,
                 stay.segment.control);
      begin += stay.slots.rows;
    }
  }

  void EndStep() {
    if (steps_.controlled()) {
      const std::vector<int8_t> statuses = steps_.ReadStatuses();
      const auto ended = [&](const Stay& stay) {
        const auto first = statuses.begin() + stay.slots.first;
        return stay.bucket != 0 &&
               std::find(first, first + stay.slots.rows, kUnderWay) == first + stay.slots.rows;
      };
      FinishWhere(ended);
      if (stays_.size() == 1 && stays_[0].bucket != 0) Compact(statuses);
    } else {
      for (Stay& stay : stays_) stay.step += stay.bucket != 0 ? 1 : 0;
      StayNear();
      FinishWhere(
          [](const Stay& stay) { return stay.bucket != 0 && stay.step == StepsOf(stay.segment); });
    }
    if (stays_.empty()) Empty();
  }

  template <class Predicate>
  void FinishWhere(const Predicate& ended) {
    for (const Stay& stay : stays_) {
      if (!ended(stay)) continue;
      SlotRows rows = compacted() ? Unparked(stay) : steps_.At(stay.slots);
      finished_.push_back({.ticket = stay.ticket,
                           .bucket = stay.bucket,
                           .steps = stay.step,
                           .rows = std::move(rows)});
    }
    std::erase_if(stays_, ended);
  }

  // Moves the rows of the only segment to a smaller bucket, if half of the slots are idle.
  void Compact(const std::vector<int8_t>& statuses) {
    Stay& stay = stays_.front();
    const auto first = statuses.begin() + stay.slots.first;
    const int64_t bucket = Bucket(std::count(first, first + stay.slots.rows, kUnderWay));
    if (bucket >= bucket_ || bucket_ < kBucketWorthLeaving) return;
    if (!compacted()) {
      here_.resize(static_cast<size_t>(stay.slots.rows));
      std::iota(here_.begin(), here_.end(), 0);
    }
    std::vector<int64_t> going, staying, going_places, staying_places;
    for (int64_t i = 0; i < stay.slots.rows; ++i) {
      const int64_t slot = stay.slots.first + i, place = here_[static_cast<size_t>(i)];
      const bool under_way = statuses[static_cast<size_t>(slot)] == kUnderWay;
      (under_way ? staying : going).push_back(slot);
      (under_way ? staying_places : going_places).push_back(place);
    }
    SlotRows rows = steps_.At({.first = 0, .rows = bucket_});
    const at::Tensor slots =
        at::tensor(going, at::kLong).to(stream_->device(), /*non_blocking=*/true);
    for (at::Tensor* part : {&rows.z, &rows.status, &rows.nfe}) {
      *part = part->index_select(0, slots);
    }
    parked_.push_back({.rows = std::move(rows), .places = std::move(going_places)});
    steps_.Keep(staying, bucket);
    bucket_ = bucket;
    here_ = std::move(staying_places);
    stay.slots = {.first = 0, .rows = static_cast<int64_t>(here_.size())};
  }

  // All rows of the only segment, in its order.
  SlotRows Unparked(const Stay& stay) {
    parked_.push_back({.rows = steps_.At(stay.slots), .places = here_});
    std::vector<at::Tensor> z, status, nfe;
    std::vector<int64_t> order(static_cast<size_t>(stay.segment.rows));
    int64_t from = 0;
    for (const Parked& part : parked_) {
      z.push_back(part.rows.z);
      status.push_back(part.rows.status);
      nfe.push_back(part.rows.nfe);
      for (const int64_t place : part.places) order[static_cast<size_t>(place)] = from++;
    }
    const at::Tensor indices =
        at::tensor(order, at::kLong).to(stream_->device(), /*non_blocking=*/true);
    return {.z = at::cat(z).index_select(0, indices),
            .progress = {},
            .status = at::cat(status).index_select(0, indices),
            .nfe = at::cat(nfe).index_select(0, indices)};
  }

  BatchResult ResultOf(const Finished& finished) const {
    BatchResult result{.status = {}, .bucket = finished.bucket};
    const SlotRows& rows = finished.rows;
    at::Tensor converged;
    if (steps_.controlled()) {
      CountControlled(rows, result);
      if (spec_.want_outputs) {
        converged = rows.status.eq(static_cast<int8_t>(RowStatus::kConverged));
      }
    } else {
      CountFixed(rows, finished.steps, result);
      if (spec_.want_outputs) converged = rows.progress.eq(finished.steps);
    }
    if (spec_.want_state) result.state = HostTensorFrom(rows.z.to(ResultDtype(spec_)));
    if (spec_.want_outputs) {
      const at::Tensor outputs = setup_.head.Apply(rows.z);
      const at::Tensor none =
          at::full({}, std::numeric_limits<double>::quiet_NaN(), outputs.options());
      result.outputs = HostTensorFrom(at::where(OverRows(converged, outputs, 0), outputs, none));
    }
    return result;
  }

  void CountFixed(const SlotRows& rows, int64_t steps, BatchResult& result) const {
    const at::Tensor progress = rows.progress.to(at::kCPU).to(at::kInt).contiguous();
    const int stages = OptionsOf(spec_).tableau.solution_stages();
    const RowCosts costs(spec_);
    for (int64_t i = 0; i < progress.numel(); ++i) {
      const int64_t done = progress.const_data_ptr<int32_t>()[i];
      const int64_t tried = std::min(done + 1, steps);
      result.status.push_back(done == steps ? RowStatus::kConverged : RowStatus::kNonFinite);
      costs.Append(tried * stages, spec_.correction == nullptr ? 0 : tried, result);
    }
  }

  void CountControlled(const SlotRows& rows, BatchResult& result) const {
    const at::Tensor status = rows.status.to(at::kCPU).contiguous();
    const at::Tensor nfe = rows.nfe.to(at::kCPU).contiguous();
    const RowCosts costs(spec_);
    for (int64_t i = 0; i < status.numel(); ++i) {
      result.status.push_back(static_cast<RowStatus>(status.const_data_ptr<int8_t>()[i]));
      costs.Append(nfe.const_data_ptr<int32_t>()[i], 0, result);
    }
  }

  // Fixed after construction.
  const BatchSpec spec_;
  const StreamLease stream_;
  const SolveSetup setup_;

  int64_t bucket_;           // of the slots now
  std::vector<Stay> stays_;  // segments that have not ended
  Ticket next_ticket_ = 0;
  SlotSteps steps_;
  std::vector<Parked> parked_;  // not empty: the run has one segment and a smaller bucket
  std::vector<int64_t> here_;   // then: the place in its segment of each row in a slot
  std::vector<Finished> finished_;
  // Of StayNear.
  int steps_ahead_ = 0;  // since the mark
  std::optional<c10::Event> mark_;
};

}  // namespace

bool SlotRunSupports(const BatchSpec& spec) {
  const SolveOptions options = OptionsOf(spec);
  const ModelSpec& model = spec.model->spec();
  return spec.knots.empty() && spec.guidance == 0 && !model.field_package && spec.save_at.empty() &&
         !spec.want_depth && spec.log_density == LogDensity::kNone &&
         spec.derivative == Derivative::kNone && options.s0 < options.s1 &&
         !RunsFromTable(spec.method.method);
}

std::unique_ptr<Run> MakeSlotRun(const BatchSpec& spec, StreamLease stream, int64_t rows,
                                 std::shared_ptr<const StepGraph> graph) {
  return std::make_unique<SlotRun>(spec, std::move(stream), rows, std::move(graph));
}

}  // namespace hyperserve
