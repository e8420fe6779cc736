// A Run solves rows of one BatchSpec. Rows come in segments and leave as segments. A segment may be
// admitted while others are under way; from then on they share evaluations of f.
//
//   HS_ASSIGN_OR_RETURN(const Ticket ticket, run->Admit(segment));
//   for (bool done = false; !done;) {
//     HS_ASSIGN_OR_RETURN(done, run->Advance(8, cancelled));
//     ... run->TakeFinished(), run->Admit(another) ...
//   }
//
// No type of LibTorch crosses this header. A Run holds no lock: one thread at a time may use it. It
// waits for the device only, starts no thread and reads no clock. A row that goes wrong ends in its
// own RowStatus, never in an error of the run. A row's answer does not depend on other rows: bit
// for bit on the CPU, and within one bucket on CUDA. There an adaptive segment of over 512 rows
// that is alone in its run moves to smaller buckets as its rows end, and agrees within rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/plan/row_status.h"
#include "core/plan/step_control.h"

namespace hyperserve {

// The rows of one request, or a part of them.
struct Segment {
  int64_t rows = 0;
  TensorView data;          // borrowed; [rows, ...] of the spec's dtype; ignored for kNoise
  uint64_t seed = 0;        // kNoise only
  uint64_t first_row = 0;   // the number of the segment's first row, for noise and probes
  uint64_t probe_seed = 0;  // kHutchinson only
  // Of conditional models, borrowed like the data: F32 or F64, [rows, features], or [1, features]
  // for all rows; with knots in the spec [rows, knots, features] or [1, knots, features].
  TensorView condition = {};
  // Where the spec has guidance, borrowed too: F64 [rows, guidance], or [1, guidance] for all rows.
  TensorView guidance = {};
  // Of derivatives, borrowed like the data: F32 or F64. kVjp without a log-density: the cotangent
  // of z(s1), [rows, state...]. kJvp: the tangent of the data, [rows, ...]; empty: zeros.
  TensorView vector = {};
  TensorView condition_vector = {};  // kJvp: the tangent of the condition, [rows or 1, features]
  StepControl control;  // of all its rows; K or tolerances, as the spec's stepping says
};

// K of a fixed plan, or n of a learned solver. Precondition: the segment is of fixed steps.
inline int64_t StepsOf(const Segment& segment) {
  return std::get<FixedSteps>(segment.control).steps;
}

// The conditions (or the guidance) of rows [begin, begin + rows): those rows, or the one that is of
// all rows.
inline TensorView ConditionsOf(const TensorView& condition, int64_t begin, int64_t rows) {
  const bool of_all = condition.shape.empty() || condition.shape[0] == 1;
  return of_all ? condition : RowsOf(condition, begin, rows);
}

// Rows [begin, begin + rows) of a segment. Data, condition, guidance and the vectors of a
// derivative are views into those of `segment`; noise is shifted by first_row. Precondition: the
// rows are there.
inline Segment RowsOf(const Segment& segment, int64_t begin, int64_t rows) {
  Segment part = segment;
  part.rows = rows;
  part.first_row += static_cast<uint64_t>(begin);
  part.data = RowsOf(segment.data, begin, rows);
  part.condition = ConditionsOf(segment.condition, begin, rows);
  part.guidance = ConditionsOf(segment.guidance, begin, rows);
  part.vector = RowsOf(segment.vector, begin, rows);
  part.condition_vector = ConditionsOf(segment.condition_vector, begin, rows);
  return part;
}

// The rows of one segment, in its order. Outputs and log-densities of rows that did not converge
// are NaN. A result that the spec does not ask for is a tensor without dimensions.
struct BatchResult {
  std::vector<RowStatus> status;
  // z(s1), [rows, state...]; F64 in tier double, else F32. The last finite state of rows that
  // failed.
  HostTensor state;
  std::vector<double> depth;  // of each row's state, on the solver's clock; s1 where it converged
  HostTensor saved;    // [rows, save_at, state...], dtype of state; NaN at depths not reached
  HostTensor outputs;  // [rows, outputs], dtype of state
  // F64 [rows]. From noise to data: log p(x) of the sample x = z(s1), log N(z0) - log|det dx/dz0|.
  // From data to noise: log p(x) of the data x = z(s0), log N(z1) + log|det dz1/dx|.
  HostTensor log_density;
  // kHutchinson: the standard error of each row's log-density, over its probes; NaN as there.
  std::vector<double> log_density_error;
  // Of derivatives, in the dtype of state; not meaningful in rows that failed. kVjp: of the start
  // as it came, [rows, ...]. kJvp: of z(s1), [rows, state...].
  HostTensor product;
  HostTensor condition_product;  // kVjp of conditional models, [rows, features]
  std::vector<double> distance;  // of each row, by the table's distance readout
  // Costs of each row. nfe counts rejected steps, the estimate of the first step and both halves of
  // a guided slope; macs counts f, g, their tangents (a pass each), the distance readout, the maps
  // and, where a density is solved apart (paired_run.h), both solves, whose slopes nfe counts once.
  std::vector<int32_t> nfe;
  std::vector<int32_t> correction_evaluations;
  std::vector<int64_t> macs;
  int64_t bucket = 0;  // rows that the nets saw when the segment joined, with padding
  // Rows of tier fast that fp16 cannot carry, solved in fp32 instead.
  int64_t solved_again = 0;
};

using Ticket = int64_t;  // names a segment within its run; never reused there

// A segment that ended as a whole. It owns its arrays: they outlive the run.
struct SolvedSegment {
  Ticket ticket = 0;
  BatchResult rows;
};

// Comes from DeviceRuntime::StartRun and ends when it is destroyed, whatever rows are in it. Its
// owners are the solvers of the batcher, one run at a time each, and whoever solves alone.
class Run {
 public:
  virtual ~Run() = default;

  // The number of rows that Admit would take now, in one segment. On CUDA runs of the readable and
  // the graph engine keep the bucket that they were started with. A run of kVjp takes none while
  // rows are under way. Every other run takes any number.
  virtual int64_t room() const = 0;

  // Adds a segment; its rows start with the next step. Its data must stay valid until the next
  // Advance returns or the ticket is dropped. kInvalidArgument for rows, data or a control that do
  // not fit the spec; kResourceExhausted for more than room() rows. An error changes nothing.
  virtual absl::StatusOr<Ticket> Admit(const Segment& segment) = 0;

  // Makes at most `evaluations_max` evaluations of f on all rows; true when every row has finished.
  // Calls `cancelled`, if it is set, before each evaluation and returns kCancelled when it is true.
  // A fused engine makes all evaluations in one call, in launches of at most 20 ms, and calls
  // `cancelled` before each launch; captured tables likewise, a launch for each number of steps.
  // kResourceExhausted where the device has no memory for the rows: fewer may fit. kUnavailable
  // where the device is lost for this process. Else kInternal where it or LibTorch fails. After an
  // error the run holds no rows and no results, and may be used again, unless the device is lost.
  virtual absl::StatusOr<bool> Advance(int64_t evaluations_max,
                                       const std::function<bool()>& cancelled) = 0;

  // The segments that have become complete since the last call, each with all of its rows, in any
  // order. Waits for the device, which copies the results to the host. Fails as Advance does.
  virtual absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() = 0;

  // Forgets a segment that TakeFinished has not returned: its rows cost nothing from the next step
  // on and have no result. Unknown tickets are ignored.
  virtual void Drop(Ticket ticket) = 0;
};

}  // namespace hyperserve
