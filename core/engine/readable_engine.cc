// The readable engine: BatchSolver over TensorSpace, one LibTorch operation after the other. The
// oracle of the tests, and the engine of every spec that no faster one takes.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_rows.h"
#include "core/engine/device.h"
#include "core/engine/engine.h"
#include "core/engine/row_numbers.h"
#include "core/engine/row_padding.h"
#include "core/engine/solve_setup.h"
#include "core/engine/tensor_space.h"
#include "core/model/net/net.h"
#include "core/ode/solver.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What a thread needs around LibTorch calls: no gradients, one thread, the engine's own stream.
struct EngineScope {
  explicit EngineScope(c10::Stream stream) : stream_guard(stream) {
    if (at::get_num_threads() != 1) at::set_num_threads(1);
  }
  at::NoGradGuard no_grad;
  c10::StreamGuard stream_guard;
};

// A batch on its way. The solver points to the space: neither moves.
struct Running {
  Running(BatchSpec batch_spec, SolveSetup setup, const at::Tensor& z0)
      : spec(std::move(batch_spec)),
        space(std::move(setup.space)),
        bucket(setup.bucket),
        solver(&space, std::move(setup.options), space.Start(z0)),
        passes(space.passes({z0, {}, {}})) {
    if (spec.log_density != LogDensity::kNone) start = z0;
  }

  const BatchSpec spec;
  const TensorSpace space;
  const int64_t bucket;
  BatchSolver<TensorSpace> solver;
  const int64_t passes;
  at::Tensor start;  // where a log-density is asked for
};

// NaN in every number of the rows where keep is false.
at::Tensor Masked(const at::Tensor& rows, const std::vector<bool>& keep) {
  std::vector<int64_t> shape(static_cast<size_t>(rows.dim()), 1);
  shape[0] = rows.size(0);
  const at::Tensor mask =
      RowTensor(PerRow(keep.begin(), keep.end()), at::TensorOptions(at::kBool)).view(shape);
  return at::where(mask.to(rows.device()), rows, at::full({}, kNaN, rows.options()));
}

class ReadableEngine final : public Engine {
 public:
  explicit ReadableEngine(at::Device device)
      : device_(device),
        device_name_(device.str()),
        stream_(device.is_cuda()
                    ? c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)
                    : c10::Stream(c10::Stream::DEFAULT, device)) {}

  std::string_view name() const override { return "readable"; }
  std::string_view device() const override { return device_name_; }
  absl::Status Supports(const BatchSpec& spec) const override { return CheckSolve(spec); }

  absl::Status Begin(const Batch& batch) override {
    HS_RETURN_IF_ERROR(CheckSolve(batch.spec));
    HS_RETURN_IF_ERROR(CheckRows(batch));
    return CatchExceptions("starting a batch", [&]() -> absl::Status {
      const EngineScope scope(stream_);
      SolveSetup setup = SetUpSolve(batch.spec, CountRows(batch), device_);
      at::Tensor z0 = ReadRows(batch, SolveDtype(batch.spec), device_);
      if (batch.spec.entry == Entry::kInput) z0 = ApplyMap(batch.spec, "stem", z0);
      running_ = std::make_unique<Running>(batch.spec, std::move(setup), z0);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<bool> Advance(int max_steps, const std::function<bool()>& cancelled) override {
    if (running_ == nullptr) return absl::FailedPreconditionError("no batch is running");
    absl::StatusOr<bool> done = CatchExceptions("solving a batch", [&]() -> absl::StatusOr<bool> {
      const EngineScope scope(stream_);
      for (int step = 0; step < max_steps && !running_->solver.done(); ++step) {
        if (cancelled && cancelled()) return absl::CancelledError("the batch was cancelled");
        running_->solver.Advance(1);
      }
      return running_->solver.done();
    });
    if (!done.ok()) running_.reset();
    return done;
  }

  absl::StatusOr<BatchResult> TakeFinished() override {
    if (running_ == nullptr || !running_->solver.done()) {
      return absl::FailedPreconditionError("no batch has finished");
    }
    const std::unique_ptr<Running> running = std::move(running_);
    return CatchExceptions("finishing a batch", [&]() -> absl::StatusOr<BatchResult> {
      const EngineScope scope(stream_);
      return Finish(*running);
    });
  }

 private:
  // The stem or the head, on as many rows as it needs to see.
  at::Tensor ApplyMap(const BatchSpec& spec, std::string_view prefix, const at::Tensor& rows) {
    const Net net = spec.model->weights().Get(prefix, device_, rows.scalar_type());
    if (net.empty()) return rows;
    const bool stem = prefix == "stem";
    const RowPadding padding =
        PaddingOf({{stem ? &spec.model->spec().stem : &spec.model->spec().head,
                    stem ? spec.model->spec().input.shape : spec.model->state_shape()}},
                  rows.size(0), device_);
    const int64_t count = rows.size(0);
    const Dual padded = PadRows({rows, {}}, padding.Rows(count));
    return net.Apply(padded.value, {}).narrow(0, 0, count);
  }

  BatchResult Finish(Running& running) {
    SolveResult<TensorSpace::State> solved = running.solver.TakeResult();
    const BatchSpec& spec = running.spec;
    BatchResult result{.status = solved.status, .bucket = running.bucket};
    std::vector<bool> converged;
    for (const RowStatus status : solved.status) {
      converged.push_back(status == RowStatus::kConverged);
    }
    result.state = HostTensorFrom(solved.state.z.to(ResultDtype(spec)));
    std::vector<at::Tensor> saved;
    for (size_t k = 0; k < solved.saved.size(); ++k) {
      saved.push_back(Masked(solved.saved[k].z, solved.reached[k]));
    }
    if (!saved.empty()) {
      result.saved = HostTensorFrom(at::stack(saved, 1).to(ResultDtype(spec)));
    }
    if (spec.want_outputs) {
      result.outputs = HostTensorFrom(Masked(ApplyMap(spec, "head", solved.state.z), converged));
    }
    if (spec.log_density != LogDensity::kNone) {
      result.log_density = LogDensities(running, solved.state, converged);
    }
    Count(running, solved.counts, result);
    return result;
  }

  static HostTensor LogDensities(const Running& running, const TensorSpace::State& end,
                                 const std::vector<bool>& converged) {
    const bool sampling = RunsToData(running.spec);
    const PerRow change = RowValues(end.log_density);
    const PerRow normal = LogStandardNormal(sampling ? running.start : end.z);
    HostTensor result = HostTensor::Zeros(Dtype::kF64, {static_cast<int64_t>(converged.size())});
    for (size_t i = 0; i < converged.size(); ++i) {
      const double value = sampling ? normal[i] - change[i] : normal[i] + change[i];
      result.as<double>()[i] = converged[i] ? value : kNaN;
    }
    return result;
  }

  static void Count(const Running& running, const std::vector<RowCounts>& counts,
                    BatchResult& result) {
    const BatchSpec& spec = running.spec;
    int64_t maps = spec.entry == Entry::kInput ? spec.model->stem_macs() : 0;
    if (spec.want_outputs) maps += spec.model->head_macs();
    const int64_t correction_macs = spec.correction == nullptr ? 0 : spec.correction->macs();
    for (const RowCounts& row : counts) {
      result.nfe.push_back(static_cast<int32_t>(row.nfe));
      result.correction_evaluations.push_back(static_cast<int32_t>(row.correction_evaluations));
      result.macs.push_back(maps + running.passes * (row.nfe * spec.model->field_macs() +
                                                     row.correction_evaluations * correction_macs));
    }
  }

  // Fixed after construction.
  const at::Device device_;
  const std::string device_name_;
  const c10::Stream stream_;
  // Null between batches.
  std::unique_ptr<Running> running_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeReadableEngine(std::string_view device) {
  using Result = absl::StatusOr<std::unique_ptr<Engine>>;
  return CatchExceptions("making the readable engine", [&]() -> Result {
    HS_ASSIGN_OR_RETURN(const at::Device found, FindDevice(device));
    return std::make_unique<ReadableEngine>(found);
  });
}

absl::StatusOr<BatchResult> RunBatch(Engine& engine, const Batch& batch) {
  constexpr int kStepsAtOnce = 64;
  HS_RETURN_IF_ERROR(engine.Begin(batch));
  for (bool done = false; !done;) {
    HS_ASSIGN_OR_RETURN(done, engine.Advance(kStepsAtOnce, nullptr));
  }
  return engine.TakeFinished();
}

}  // namespace hyperserve
