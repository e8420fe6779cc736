#include "tests/testing/fake_engine.h"

#include <algorithm>
#include <utility>

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

void FakeEngineControl::LetThrough(int steps) {
  const std::lock_guard lock(mutex_);
  allowance_ += steps;
  changed_.notify_all();
}

void FakeEngineControl::WaitForBatches(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return batches_.size() >= count; });
}

std::vector<FakeEngineControl::SeenBatch> FakeEngineControl::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

int64_t FakeEngineControl::steps_taken() const {
  const std::lock_guard lock(mutex_);
  return steps_taken_;
}

void FakeEngineControl::Saw(SeenBatch batch) {
  const std::lock_guard lock(mutex_);
  batches_.push_back(std::move(batch));
  changed_.notify_all();
}

bool FakeEngineControl::PassGate(const std::function<bool()>& cancelled) {
  std::unique_lock lock(mutex_);
  while (closed_ && allowance_ == 0) {
    if (cancelled()) return false;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (closed_) --allowance_;
  ++steps_taken_;
  return true;
}

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(std::shared_ptr<FakeEngineControl> control) : control_(std::move(control)) {}

  std::string_view name() const override { return "fake"; }
  std::string_view device() const override { return "cpu"; }
  absl::Status Supports(const BatchSpec&) const override { return absl::OkStatus(); }

  absl::Status Begin(const Batch& batch) override {
    FakeEngineControl::SeenBatch seen{.spec = batch.spec, .segment_rows = {}, .rows = 0};
    values_.clear();
    for (const Segment& segment : batch.segments) {
      seen.segment_rows.push_back(segment.rows);
      seen.rows += segment.rows;
      AppendValues(segment);
    }
    control_->Saw(std::move(seen));
    if (control_->refuse) {
      if (absl::Status refusal = control_->refuse(batch); !refusal.ok()) return refusal;
    }
    const auto* fixed = std::get_if<FixedPlan>(&batch.spec.plan);
    steps_left_ = fixed != nullptr ? fixed->steps : 1;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance(int max_steps, const std::function<bool()>& cancelled) override {
    for (int i = 0; i < max_steps && steps_left_ > 0; ++i, --steps_left_) {
      if (cancelled() || !control_->PassGate(cancelled)) return absl::CancelledError("cancelled");
    }
    return steps_left_ == 0;
  }

  absl::StatusOr<BatchResult> TakeFinished() override {
    const auto rows = static_cast<int64_t>(values_.size());
    BatchResult result{.status = std::vector(values_.size(), RowStatus::kConverged),
                       .state = HostTensor::Zeros(Dtype::kF32, {rows, 1}),
                       .saved = {},
                       .outputs = {},
                       .log_density = {},
                       .nfe = std::vector<int32_t>(values_.size(), 3),
                       .correction_evaluations = std::vector<int32_t>(values_.size(), 0),
                       .macs = std::vector<int64_t>(values_.size(), 10),
                       .bucket = rows};
    std::copy(values_.begin(), values_.end(), result.state.as<float>().begin());
    return result;
  }

 private:
  void AppendValues(const Segment& segment) {
    for (int64_t row = 0; row < segment.rows; ++row) {
      if (segment.data.bytes.empty()) {
        values_.push_back(FakeRow(static_cast<double>(segment.first_row) + row));
        continue;
      }
      const auto* numbers = reinterpret_cast<const float*>(segment.data.bytes.data());
      const int64_t width =
          static_cast<int64_t>(segment.data.bytes.size() / sizeof(float)) / segment.rows;
      values_.push_back(FakeRow(numbers[row * width]));
    }
  }

  const std::shared_ptr<FakeEngineControl> control_;
  std::vector<float> values_;
  int steps_left_ = 0;
};

std::unique_ptr<Engine> MakeFakeEngine(std::shared_ptr<FakeEngineControl> control) {
  return std::make_unique<FakeEngine>(std::move(control));
}

std::shared_ptr<const Model> FakeModel() {
  const auto identity = std::make_shared<char>();
  return {identity, reinterpret_cast<const Model*>(identity.get())};
}

}  // namespace hyperserve
