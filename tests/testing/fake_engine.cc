#include "tests/testing/fake_engine.h"

#include <algorithm>
#include <utility>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

void FakeEngineControl::CloseGate() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void FakeEngineControl::OpenGate() {
  const std::lock_guard lock(mutex_);
  closed_ = false;
  changed_.notify_all();
}

void FakeEngineControl::LetThrough(int evaluations) {
  const std::lock_guard lock(mutex_);
  allowance_ += evaluations;
  changed_.notify_all();
}

void FakeEngineControl::WaitForBatches(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const auto begun =
        std::ranges::count_if(batches_, [](const SeenBatch& batch) { return batch.rows > 0; });
    return static_cast<size_t>(begun) >= count;
  });
}

std::vector<FakeEngineControl::SeenBatch> FakeEngineControl::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

int64_t FakeEngineControl::evaluations() const {
  const std::lock_guard lock(mutex_);
  return evaluations_;
}

size_t FakeEngineControl::Started(const BatchSpec& spec) {
  const std::lock_guard lock(mutex_);
  batches_.push_back({.spec = spec, .segment_rows = {}, .rows = 0});
  return batches_.size() - 1;
}

void FakeEngineControl::Admitted(size_t batch, int64_t rows) {
  const std::lock_guard lock(mutex_);
  batches_[batch].segment_rows.push_back(rows);
  batches_[batch].rows += rows;
  changed_.notify_all();
}

bool FakeEngineControl::PassGate(const std::function<bool()>& cancelled) {
  std::unique_lock lock(mutex_);
  while (closed_ && allowance_ == 0) {
    if (cancelled()) return false;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (closed_) --allowance_;
  ++evaluations_;
  return true;
}

int64_t FakeStages(const MethodChoice& method) { return TableauFor(method).solution_stages(); }

// All rows take their steps together; rows that are admitted within a step wait for the next one.
class FakeRun final : public Run {
 public:
  FakeRun(std::shared_ptr<FakeEngineControl> control, const BatchSpec& spec)
      : control_(std::move(control)),
        number_(control_->Started(spec)),
        stages_(FakeStages(spec.method)) {}

  int64_t room() const override { return control_->room - rows(); }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    if (control_->refuse_rows) {
      if (absl::Status refusal = control_->refuse_rows(segment); !refusal.ok()) return refusal;
    }
    if (segment.rows > room()) return absl::ResourceExhaustedError("the run is full");
    int64_t steps = 1;
    if (const auto* fixed = std::get_if<FixedSteps>(&segment.control)) {
      steps = fixed->steps;
    } else if (control_->adaptive_steps) {
      steps = control_->adaptive_steps(segment);
    }
    segments_.push_back(
        {.ticket = next_ticket_, .segment = segment, .evaluations = steps * stages_, .nfe = 0});
    control_->Admitted(number_, segment.rows);
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t evaluations_max,
                               const std::function<bool()>& cancelled) override {
    for (int64_t i = 0; (control_->whole_solves || i < evaluations_max) && HasRows(); ++i) {
      absl::Status status = Evaluate(cancelled);
      if (!status.ok()) {
        segments_.clear();
        return status;
      }
    }
    return !HasRows();
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    std::vector<SolvedSegment> finished;
    std::erase_if(segments_, [&](const Inside& inside) {
      if (inside.evaluations > 0) return false;
      finished.push_back({.ticket = inside.ticket, .rows = ResultOf(inside)});
      return true;
    });
    return finished;
  }

  void Drop(Ticket ticket) override {
    std::erase_if(segments_, [&](const Inside& inside) { return inside.ticket == ticket; });
  }

 private:
  struct Inside {
    Ticket ticket = 0;
    Segment segment;
    int64_t evaluations = 0;  // to come; 0: finished
    int32_t nfe = 0;          // made
    bool stepping = false;    // takes part in the step that is under way
  };

  int64_t rows() const {
    int64_t rows = 0;
    for (const Inside& inside : segments_) rows += inside.segment.rows;
    return rows;
  }
  bool HasRows() const {
    return std::ranges::any_of(segments_, [](const Inside& one) { return one.evaluations > 0; });
  }

  absl::Status Evaluate(const std::function<bool()>& cancelled) {
    if (cancelled() || !control_->PassGate(cancelled)) return absl::CancelledError("cancelled");
    if (std::ranges::none_of(segments_, &Inside::stepping)) stage_ = 0;
    FakeEngineControl::SeenEvaluation seen{.batch = number_, .rows = 0};
    std::vector<Segment> sharing;
    for (Inside& inside : segments_) {
      if (stage_ == 0) inside.stepping = inside.evaluations > 0;
      if (!inside.stepping) continue;
      sharing.push_back(inside.segment);
      seen.rows += inside.segment.rows;
      ++inside.nfe;
      if (--inside.evaluations == 0) inside.stepping = false;
    }
    stage_ = (stage_ + 1) % stages_;
    if (control_->on_evaluation) control_->on_evaluation(seen);
    return control_->break_run ? control_->break_run(sharing) : absl::OkStatus();
  }

  static BatchResult ResultOf(const Inside& inside) {
    const Segment& segment = inside.segment;
    const auto rows = static_cast<size_t>(segment.rows);
    BatchResult result{.status = std::vector(rows, RowStatus::kConverged),
                       .state = HostTensor::Zeros(Dtype::kF32, {segment.rows, 1}),
                       .saved = {},
                       .outputs = {},
                       .log_density = {},
                       .nfe = std::vector<int32_t>(rows, inside.nfe),
                       .correction_evaluations = std::vector<int32_t>(rows, 0),
                       .macs = std::vector<int64_t>(rows, 10),
                       .bucket = segment.rows};
    const std::vector<double> data = AsDoubles(segment.data);
    for (size_t row = 0; row < rows; ++row) {
      const double value = data.empty() ? static_cast<double>(segment.first_row + row)
                                        : data[row * (data.size() / rows)];
      result.state.as<float>()[row] = FakeRow(value);
    }
    return result;
  }

  const std::shared_ptr<FakeEngineControl> control_;
  const size_t number_;
  const int64_t stages_;
  int64_t stage_ = 0;  // of the step that is under way
  Ticket next_ticket_ = 1;
  std::vector<Inside> segments_;
};

class FakeRuntime final : public DeviceRuntime {
 public:
  explicit FakeRuntime(std::shared_ptr<FakeEngineControl> control) : control_(std::move(control)) {}

  std::string_view device() const override { return "cpu"; }
  EngineKinds engines() const override {
    return {
        {.name = "fake", .supports = [](const BatchSpec&, int64_t) { return absl::OkStatus(); }}};
  }
  absl::StatusOr<StartedRun> StartRun(const BatchSpec& spec, int64_t) override {
    if (control_->refuse_run) {
      if (absl::Status refusal = control_->refuse_run(spec); !refusal.ok()) return refusal;
    }
    return StartedRun{.run = std::make_unique<FakeRun>(control_, spec),
                      .choice = {.engine = "fake", .why = "there is no other"}};
  }
  absl::Status WarmUp(const BatchSpec&, const StepControl&, int64_t,
                      const std::function<bool()>&) override {
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<FakeEngineControl> control_;
};

std::unique_ptr<DeviceRuntime> MakeFakeRuntime(std::shared_ptr<FakeEngineControl> control) {
  return std::make_unique<FakeRuntime>(std::move(control));
}

std::shared_ptr<const Model> FakeModel() {
  const auto identity = std::make_shared<char>();
  return {identity, reinterpret_cast<const Model*>(identity.get())};
}

}  // namespace hyperserve
