#include "core/engine/readable/readable_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_faults.h"
#include "core/engine/readable/batch_rows.h"
#include "core/engine/readable/row_costs.h"
#include "core/engine/readable/row_numbers.h"
#include "core/engine/readable/row_padding.h"
#include "core/engine/readable/segment_results.h"
#include "core/engine/readable/slot_run.h"
#include "core/engine/readable/solve_setup.h"
#include "core/engine/readable/tensor_space.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/net.h"
#include "core/ode/masked.h"
#include "core/ode/solve_options.h"
#include "core/ode/solve_result.h"
#include "core/ode/solver.h"
#include "core/ode/space.h"
#include "core/ode/table_solver.h"
#include "core/plan/method.h"
#include "core/plan/row_status.h"

namespace hyperserve {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The rows where keep is true; NaN in every number of the others.
at::Tensor Masked(const at::Tensor& rows, const std::vector<bool>& keep) {
  if (All(keep)) return rows;
  std::vector<int64_t> shape(static_cast<size_t>(rows.dim()), 1);
  shape[0] = rows.size(0);
  const at::Tensor mask =
      RowTensor(PerRow(keep.begin(), keep.end()), at::TensorOptions(at::kBool)).view(shape);
  return at::where(mask.to(rows.device()), rows, at::full({}, kNaN, rows.options()));
}

// F64 [rows] as it is; of [rows, probes] the mean over the probes, in their order.
PerRow MeanOfProbes(const at::Tensor& log_density) {
  const PerRow values = RowValues(log_density);
  const auto rows = static_cast<size_t>(log_density.size(0));
  const size_t probes = values.size() / rows;
  PerRow means(rows);
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (size_t i = 0; i < probes; ++i) sum += values[row * probes + i];
    means[row] = sum / static_cast<double>(probes);
  }
  return means;
}

// Of the mean over the probes, [rows, probes].
std::vector<double> StandardErrors(const at::Tensor& log_density,
                                   const std::vector<bool>& converged) {
  const PerRow values = RowValues(log_density), means = MeanOfProbes(log_density);
  const auto probes = static_cast<size_t>(log_density.size(1));
  std::vector<double> errors(means.size(), kNaN);
  for (size_t row = 0; row < means.size(); ++row) {
    double squares = 0;
    for (size_t i = 0; i < probes; ++i) {
      squares += (values[row * probes + i] - means[row]) * (values[row * probes + i] - means[row]);
    }
    const auto count = static_cast<double>(probes);
    if (converged[row]) errors[row] = std::sqrt(squares / (count - 1) / count);
  }
  return errors;
}

using Solver = std::variant<BatchSolver<TensorSpace>, TableSolver<TensorSpace>>;

Solver MakeSolver(const BatchSpec& spec, const TensorSpace& space, at::Device device) {
  const SolveOptions options = OptionsOf(spec);
  if (!RunsFromTable(spec.method.method)) return BatchSolver<TensorSpace>(&space, options);
  // The spec may go before the solver does; copies share their models.
  const auto table = [spec, device](int64_t steps) { return TableFor(spec, steps, device); };
  return TableSolver<TensorSpace>(&space, table, options.s0, options.s1);
}

class ReadableRun final : public Run {
 public:
  ReadableRun(const BatchSpec& spec, StreamLease stream, int64_t rows)
      : spec_(spec),
        stream_(std::move(stream)),
        setup_(SetUpSolve(spec_, rows, stream_->device())),
        solver_(MakeSolver(spec_, setup_.space, stream_->device())) {}

  int64_t room() const override {
    return stream_->device().is_cuda() ? setup_.bucket - rows_here()
                                       : std::numeric_limits<int64_t>::max();
  }

  absl::StatusOr<Ticket> Admit(const Segment& segment) override {
    HS_RETURN_IF_ERROR(CheckSegment(spec_, segment));
    if (segment.rows > room()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the run has room for ", room(), " more rows, not for ", segment.rows));
    }
    waiting_.push_back(segment);
    waiting_tickets_.push_back(next_ticket_);
    return next_ticket_++;
  }

  absl::StatusOr<bool> Advance(int64_t evaluations_max,
                               const std::function<bool()>& cancelled) override {
    absl::StatusOr<bool> done = CatchDeviceFaults("solving a batch", [&]() -> absl::StatusOr<bool> {
      HS_RETURN_IF_ERROR(broken_);
      const TorchScope scope(*stream_);
      if (!waiting_.empty()) Start();
      return std::visit(
          [&](auto& solver) -> absl::StatusOr<bool> {
            for (int64_t i = 0; i < evaluations_max && !solver.done(); ++i) {
              if (cancelled && cancelled()) return absl::CancelledError("the batch was cancelled");
              solver.Advance(1);
            }
            return solver.done();
          },
          solver_);
    });
    if (!done.ok()) Clear();
    return done;
  }

  absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() override {
    using Result = absl::StatusOr<std::vector<SolvedSegment>>;
    Result finished = CatchDeviceFaults("finishing a batch", [&]() -> Result {
      const TorchScope scope(*stream_);
      auto ended = std::visit([](auto& solver) { return solver.TakeFinished(); }, solver_);
      for (auto& solved : ended) results_.Take(Ended(solved));
      return results_.TakeWhole();
    });
    if (!finished.ok()) Clear();
    return finished;
  }

  void Drop(Ticket ticket) override {
    const auto waiting = std::find(waiting_tickets_.begin(), waiting_tickets_.end(), ticket);
    if (waiting != waiting_tickets_.end()) {
      waiting_.erase(waiting_.begin() + (waiting - waiting_tickets_.begin()));
      waiting_tickets_.erase(waiting);
      return;
    }
    const std::optional<SegmentResults::RowRange> range = results_.Forget(ticket);
    if (!range) return;
    broken_.Update(CatchDeviceFaults("dropping rows", [&] {
      const TorchScope scope(*stream_);
      std::visit([&](auto& solver) { solver.Drop(range->first, range->rows); }, solver_);
      return absl::OkStatus();
    }));
  }

 private:
  int64_t rows_here() const {
    int64_t rows = results_.missing_rows();
    for (const Segment& segment : waiting_) rows += segment.rows;
    return rows;
  }

  // Hands the waiting rows to the solver, after the input map, which takes all of them at once.
  void Start() {
    const at::ScalarType dtype = SolveDtype(spec_);
    const at::Device device = stream_->device();
    const bool pushes = spec_.derivative == Derivative::kJvp;
    Dual z0{ReadRows(spec_, waiting_, dtype, device), {}};
    if (pushes) z0.tangents = ReadVectors(spec_, waiting_, dtype, device).unsqueeze(0);
    if (spec_.entry == Entry::kInput) z0 = setup_.stem.Apply(z0);
    const int64_t bucket = setup_.space.padded(rows_here());
    PerRow start_densities;
    if (spec_.log_density != LogDensity::kNone && RunsToData(spec_)) {
      start_densities = LogStandardNormal(z0.value);
    }
    std::vector<Cohort> cohorts;
    auto density = start_densities.begin();
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const int64_t rows = waiting_[i].rows;
      const auto first = std::exchange(density, start_densities.empty() ? density : density + rows);
      results_.Expect(next_row_, {.ticket = waiting_tickets_[i],
                                  .rows = rows,
                                  .bucket = bucket,
                                  .start_log_density = {first, density}});
      cohorts.push_back({.rows = rows, .control = waiting_[i].control});
      next_row_ += rows;
    }
    TensorSpace::State start = setup_.space.Start(
        z0.value, ReadConditions(spec_, waiting_, dtype, device), ReadGuidance(spec_, waiting_),
        ReadProbes(spec_, waiting_, dtype, device));
    if (pushes) {
      start.tangents = z0.tangents;
      const at::Tensor condition = ReadConditionVectors(spec_, waiting_, dtype, device);
      if (condition.defined()) start.condition_tangents = condition.unsqueeze(0);
    }
    std::visit([&](auto& solver) { solver.Admit(start, cohorts); }, solver_);
    waiting_.clear();
    waiting_tickets_.clear();
  }

  void Clear() {
    solver_ = MakeSolver(spec_, setup_.space, stream_->device());
    results_ = SegmentResults();
    waiting_.clear();
    waiting_tickets_.clear();
    next_row_ = 0;
    broken_ = absl::OkStatus();
  }

  EndedRows Ended(const SolveResult<TensorSpace::State>& solved) const {
    EndedRows ended{.numbers = solved.rows, .result = {.status = solved.status}};
    BatchResult& result = ended.result;
    std::vector<bool> converged;
    for (const RowStatus status : solved.status) {
      converged.push_back(status == RowStatus::kConverged);
    }
    const at::Tensor& z = solved.state.z;
    if (spec_.want_depth) result.depth = solved.depth;
    result.distance = solved.distance;
    if (spec_.want_state) result.state = HostTensorFrom(z.to(ResultDtype(spec_)));
    if (spec_.derivative == Derivative::kJvp) {
      result.product = HostTensorFrom(solved.state.tangents[0].to(ResultDtype(spec_)));
    }
    std::vector<at::Tensor> saved;
    for (size_t k = 0; k < solved.saved.size(); ++k) {
      saved.push_back(Masked(solved.saved[k].z, solved.reached[k]));
    }
    if (!saved.empty()) {
      result.saved = HostTensorFrom(at::stack(saved, 1).to(ResultDtype(spec_)));
    }
    if (spec_.want_outputs) {
      result.outputs = HostTensorFrom(Masked(setup_.head.Apply(z), converged));
    }
    if (spec_.log_density != LogDensity::kNone) {
      result.log_density = LogDensities(solved.state, converged);
    }
    if (spec_.log_density == LogDensity::kHutchinson) {
      result.log_density_error = StandardErrors(solved.state.log_density, converged);
    }
    const RowCosts costs(spec_);
    for (size_t i = 0; i < solved.counts.size(); ++i) {
      const RowCounts& row = solved.counts[i];
      const int64_t nfe = spec_.guidance == 0 ? row.nfe : GuidedNfe(solved, i);
      costs.Append(nfe, row.correction_evaluations, result);
    }
    return ended;
  }

  // The row's evaluations of f, where the solver counted slopes.
  int64_t GuidedNfe(const SolveResult<TensorSpace::State>& solved, size_t row) const {
    const RowCounts& counts = solved.counts[row];
    const at::Tensor weights = solved.state.guidance.select(0, static_cast<int64_t>(row));
    if (spec_.guidance == 1) return counts.nfe * GuidedEvaluations(weights[1].item<double>());
    const int64_t steps = counts.accepted + (solved.status[row] == RowStatus::kNonFinite ? 1 : 0);
    int64_t nfe = 0;
    for (int64_t step = 0; step < steps; ++step) {
      nfe += counts.nfe / steps * GuidedEvaluations(weights[1 + step].item<double>());
    }
    return nfe;
  }

  // From noise to data, the density of the start is missing here; SegmentResults adds it.
  HostTensor LogDensities(const TensorSpace::State& end, const std::vector<bool>& converged) const {
    const PerRow change = MeanOfProbes(end.log_density);
    const PerRow normal = RunsToData(spec_) ? PerRow() : LogStandardNormal(end.z);
    HostTensor result = HostTensor::Zeros(Dtype::kF64, {static_cast<int64_t>(converged.size())});
    for (size_t i = 0; i < converged.size(); ++i) {
      const double value = normal.empty() ? -change[i] : normal[i] + change[i];
      result.as<double>()[i] = converged[i] ? value : kNaN;
    }
    return result;
  }

  // Fixed after construction.
  const BatchSpec spec_;
  const StreamLease stream_;
  const SolveSetup setup_;

  std::vector<Segment> waiting_;  // admitted and not yet handed to the solver
  std::vector<Ticket> waiting_tickets_;
  Ticket next_ticket_ = 0;
  int64_t next_row_ = 0;  // the solver's number of the next row
  absl::Status broken_;   // of a Drop that failed: the next Advance tells it
  Solver solver_;
  SegmentResults results_;
};

}  // namespace

std::unique_ptr<Run> MakeReadableRun(const BatchSpec& spec, StreamLease stream, int64_t rows) {
  if (stream->device().is_cuda() && SlotRunSupports(spec)) {
    return MakeSlotRun(spec, std::move(stream), rows);
  }
  return std::make_unique<ReadableRun>(spec, std::move(stream), rows);
}

}  // namespace hyperserve
