// An engine runs one plan on one batch of rows. No LibTorch type crosses this header.
//
// An Engine belongs to one solver thread; nothing here is thread-safe and nothing here locks, waits
// or reads a clock. Input problems are kInvalidArgument before any work; a row that goes wrong ends
// in its own RowStatus, never in an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"
#include "core/plan/row_status.h"

namespace hyperserve {

// Where a row starts.
enum class Entry {
  kInput,  // the model's input, before preprocessing: U8 (divided by 255) or F32 (F64 where the
           // tier is double)
  kState,  // z(s0) itself: F32 or F64
  kNoise,  // standard normal, Philox of (seed, first_row + i, dimension): no data
};

// The rows of one request. Data is [rows, ...] row-major and must outlive Begin().
struct Segment {
  int64_t rows = 0;
  TensorView data;         // empty for kNoise
  uint64_t seed = 0;       // kNoise
  uint64_t first_row = 0;  // kNoise
};

// How a flow's log-density is carried. Served: kDivergence for classical plans.
enum class LogDensity {
  kNone,
  // d(log p)/ds = -tr(df/dz), exact trace by forward-mode tangents, solved by the plan's own method
  // beside the state (and under its error control). Classical plans only.
  kDivergence,
  // log|det| of the Jacobian of each discrete step, by tangents: the exact log-density of the
  // discrete map. Fixed plans, classical or hypersolved. Computed in double in every tier.
  kStepMap,
};

// What a batch has in common: rows of different requests may share a batch where these are equal.
struct BatchSpec {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // set exactly where the plan is hypersolved
  std::variant<FixedPlan, AdaptivePlan> plan;
  Tier tier = Tier::kExact;
  Entry entry = Entry::kInput;
  Direction direction =
      Direction::kForward;  // flows: the direction of this solve, which may be against the field
  std::optional<std::array<double, 2>> span;  // the solver's own clock; the model's where absent
  std::vector<double> save_at;  // strictly increasing depths within the span; empty: none
  int64_t max_steps = 10000;    // of an adaptive row, accepted and rejected
  bool want_state = true;       // z(s1)
  bool want_outputs = false;    // y = h_y(z(s1)) (classifiers)
  LogDensity log_density = LogDensity::kNone;  // flows only
};

struct Batch {
  BatchSpec spec;
  std::vector<Segment> segments;
};

// Rows in the order of the batch's segments. Numbers of rows that did not converge are NaN unless
// said otherwise.
struct BatchResult {
  std::vector<RowStatus> status;
  HostTensor state;    // z(s1), [rows, state...]; F32 or F64 by tier. Rows that failed hold how far
                       // they came.
  HostTensor saved;    // [rows, save_at, state...]; depths not reached are NaN
  HostTensor outputs;  // [rows, outputs], where wanted
  // Where asked, F64 [rows]. Solves from noise to data: log p(x) of the sample x = z(s1), which is
  // log N(z0) - log|det dx/dz0|. Solves from data to noise: log p(x) of the row's x = z(s0), log
  // N(z1) + log|det dz1/dx|.
  HostTensor log_density;
  std::vector<int32_t> nfe;  // per row; rejected steps and the first-step estimate included
  std::vector<int32_t> correction_evaluations;  // per row
  // Per row: f, g, tangents (one pass each beside the value's), input and output maps included.
  std::vector<int64_t> macs;
  int64_t bucket = 0;  // rows the batch was padded to (at its start)
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;    // "readable"
  virtual std::string_view device() const = 0;  // "cpu", "cuda:0"
  // kUnimplemented with the reason where this engine cannot run the spec (tier fast, dimension too
  // large for log|det|).
  virtual absl::Status Supports(const BatchSpec& spec) const = 0;
  // Starts a batch. Precondition: none is running.
  virtual absl::Status Begin(const Batch& batch) = 0;
  // At most `max_steps` steps of the batch; true when every row has finished. `cancelled` is asked
  // between steps: where it says yes the batch is dropped and the status is kCancelled.
  virtual absl::StatusOr<bool> Advance(int max_steps, const std::function<bool()>& cancelled) = 0;
  // The results; ends the batch. Precondition: Advance returned true.
  virtual absl::StatusOr<BatchResult> TakeFinished() = 0;
};

// The readable LibTorch engine, exact and double, on "cpu" or "cuda[:N]". kInvalidArgument for a
// device that is not there.
absl::StatusOr<std::unique_ptr<Engine>> MakeReadableEngine(std::string_view device);

// Begin, Advance to the end, TakeFinished: for the gate, the trainer, the tests.
absl::StatusOr<BatchResult> RunBatch(Engine& engine, const Batch& batch);

// First lines of every main that uses an engine, before the first tensor: MKL_CBWR, TF32 off,
// deterministic algorithms.
void SetUpNumerics();

struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "NVIDIA H100 80GB HBM3", or the CPU's model name
  int64_t memory_bytes = 0;
};
std::vector<DeviceInfo> ListDevices();

}  // namespace hyperserve
