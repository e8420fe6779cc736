#include "server/warm_up.h"

#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr std::chrono::seconds kLimit(120);

// The caller's question, which solvers may still hold when nobody waits any more: a batcher that
// shuts down answers before its batches have ended.
class Question {
 public:
  explicit Question(std::function<bool()> ask) : ask_(std::move(ask)) {}

  bool Ask() {
    const std::lock_guard lock(mutex_);
    return !ask_ || ask_();
  }
  void Withdraw() {
    const std::lock_guard lock(mutex_);
    ask_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<bool()> ask_;  // guarded by mutex_
};

BatchSpec WarmUpSpec(const std::shared_ptr<const Model>& model,
                     const std::shared_ptr<const Hypersolver>& correction) {
  BatchSpec spec{.model = model};
  if (correction != nullptr) {
    const HypersolverSpec& trained = correction->spec();
    spec.correction = correction;
    spec.direction = trained.direction;
    spec.plan = FixedPlan{.method = trained.method,
                          .steps = trained.steps.empty() ? 1 : trained.steps.front(),
                          .hypersolved = true};
  } else {
    spec.direction = model->spec().direction;
    spec.plan = AdaptivePlan{.method = {Method::kDopri5}, .rtol = 1e-3, .atol = 1e-3};
    spec.max_steps = 100;  // a stiff model need not be solved to be warm
  }
  spec.entry = Entry::kInput;
  spec.want_outputs = model->spec().kind == ModelKind::kClassifier;
  return spec;
}

}  // namespace

absl::Status WarmUp(const std::shared_ptr<const Model>& model,
                    const std::shared_ptr<const Hypersolver>& correction, int solvers,
                    const std::function<bool()>& interrupted, Batcher& batcher,
                    const Clock& clock) {
  Shape shape = {1};
  const Shape& row = model->spec().input.shape;
  shape.insert(shape.end(), row.begin(), row.end());
  const auto zeros = std::make_shared<const HostTensor>(HostTensor::Zeros(Dtype::kF32, shape));

  const auto question = std::make_shared<Question>(interrupted);
  std::vector<std::future<absl::Status>> answers;
  for (int i = 0; i < solvers; ++i) {
    Work work;
    work.spec = WarmUpSpec(model, correction);
    work.segment.rows = 1;
    work.segment.data = {.dtype = zeros->dtype, .shape = zeros->shape, .bytes = zeros->bytes};
    work.keep_alive = zeros;
    work.patience = {.deadline = clock.Now() + kLimit,
                     .cancelled = [question] { return question->Ask(); }};
    // Different limits are different plans to the batcher, so each goes to a solver of its own.
    work.spec.max_steps += i;
    auto answered = std::make_shared<std::promise<absl::Status>>();
    answers.push_back(answered->get_future());
    batcher.Submit(std::move(work),
                   [answered](const absl::StatusOr<WorkResult>& result, const WorkTimes&) {
                     answered->set_value(result.status());
                   });
  }
  absl::Status first_error;
  for (std::future<absl::Status>& answer : answers) {
    const absl::Status status = answer.get();
    if (!absl::IsResourceExhausted(status)) first_error.Update(status);
  }
  question->Withdraw();
  return Annotate(first_error, "warm-up");
}

}  // namespace hyperserve
