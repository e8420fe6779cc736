#include "server/warm_up.h"

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr std::chrono::seconds kLimit(120);

// The batch ends before WarmUp returns, so it may borrow what the caller keeps alive.
template <class T>
std::shared_ptr<const T> Borrow(const T* borrowed) {
  return {std::shared_ptr<const void>(), borrowed};
}

BatchSpec WarmUpSpec(const Model& model, const Hypersolver* correction) {
  BatchSpec spec{.model = Borrow(&model)};
  if (correction != nullptr) {
    const HypersolverSpec& trained = correction->spec();
    spec.correction = Borrow(correction);
    spec.direction = trained.direction;
    spec.plan = FixedPlan{.method = trained.method,
                          .steps = trained.steps.empty() ? 1 : trained.steps.front(),
                          .hypersolved = true};
  } else {
    spec.direction = model.spec().direction;
    spec.plan = AdaptivePlan{.method = {Method::kDopri5}, .rtol = 1e-3, .atol = 1e-3};
    spec.max_steps = 100;  // a stiff model need not be solved to be warm
  }
  spec.entry = Entry::kInput;
  spec.want_outputs = model.spec().kind == ModelKind::kClassifier;
  return spec;
}

}  // namespace

absl::Status WarmUp(const Model& model, const Hypersolver* correction, int solvers,
                    const std::function<bool()>& interrupted, Batcher& batcher,
                    const Clock& clock) {
  Shape shape = {1};
  const Shape& row = model.spec().input.shape;
  shape.insert(shape.end(), row.begin(), row.end());
  const auto zeros = std::make_shared<const HostTensor>(HostTensor::Zeros(Dtype::kF32, shape));

  std::vector<std::future<absl::Status>> answers;
  for (int i = 0; i < solvers; ++i) {
    Work work;
    work.spec = WarmUpSpec(model, correction);
    work.segment.rows = 1;
    work.segment.data = {.dtype = zeros->dtype, .shape = zeros->shape, .bytes = zeros->bytes};
    work.keep_alive = zeros;
    work.patience = {.deadline = clock.Now() + kLimit, .cancelled = interrupted};
    // Different limits are different plans to the batcher, so each goes to a solver of its own.
    work.spec.max_steps += i;
    auto answered = std::make_shared<std::promise<absl::Status>>();
    answers.push_back(answered->get_future());
    batcher.Submit(std::move(work), [answered](const absl::StatusOr<WorkResult>& result) {
      answered->set_value(result.status());
    });
  }
  absl::Status first_error;
  for (std::future<absl::Status>& answer : answers) {
    const absl::Status status = answer.get();
    if (!absl::IsResourceExhausted(status)) first_error.Update(status);
  }
  return Annotate(first_error, "warm-up");
}

}  // namespace hyperserve
