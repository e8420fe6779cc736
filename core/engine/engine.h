// A Run solves rows of one BatchSpec. Rows come in segments and leave as segments: a segment may be
// admitted while others are under way, and shares their evaluations of f from then on.
//
// No LibTorch type crosses this header. A Run belongs to one thread at a time and is never locked;
// it waits for nothing but the device and reads no clock. A row that goes wrong ends in its own
// RowStatus, never in an error.
#pragma once

#include <cstdint>
#include <functional>
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
  TensorView data;         // [rows, ...] row-major, of the spec's dtype; empty for kNoise
  uint64_t seed = 0;       // kNoise
  uint64_t first_row = 0;  // kNoise
  StepControl control;     // K or tolerances, as the spec's stepping says
};

// Rows in the order of their segment. Numbers of rows that did not converge are NaN unless said
// otherwise. What the spec does not want is an empty tensor.
struct BatchResult {
  std::vector<RowStatus> status;
  HostTensor state;    // z(s1), [rows, state...]; F32 or F64 by tier. Rows that failed hold how far
                       // they came.
  HostTensor saved;    // [rows, save_at, state...]; depths not reached are NaN
  HostTensor outputs;  // [rows, outputs]
  // F64 [rows]. Solves from noise to data: log p(x) of the sample x = z(s1), which is
  // log N(z0) - log|det dx/dz0|. Solves from data to noise: log p(x) of the row's x = z(s0), log
  // N(z1) + log|det dz1/dx|.
  HostTensor log_density;
  std::vector<int32_t> nfe;  // per row; rejected steps and the first-step estimate included
  std::vector<int32_t> correction_evaluations;  // per row
  // Per row: f, g, tangents (one pass each beside the value's), input and output maps included.
  std::vector<int64_t> macs;
  int64_t bucket = 0;  // rows that the nets saw when the segment joined, padding included
};

using Ticket = int64_t;

struct SolvedSegment {
  Ticket ticket = 0;
  BatchResult rows;
};

class Run {
 public:
  virtual ~Run() = default;

  // Rows that may be admitted now. On CUDA a run keeps the bucket that it was started with.
  virtual int64_t room() const = 0;

  // Adds a segment; its rows start with the next step. Its data must stay until an Advance has
  // returned or the ticket was dropped. kInvalidArgument for rows, data or a control that do not
  // fit the spec; kResourceExhausted beyond room(). An error changes nothing.
  virtual absl::StatusOr<Ticket> Admit(const Segment& segment) = 0;

  // Makes at most `evaluations_max` evaluations of f on the rows that are here, each with what
  // belongs to it; true when all rows have finished. `cancelled` is asked before each evaluation:
  // where it says yes the status is kCancelled. After an error the run holds no rows.
  virtual absl::StatusOr<bool> Advance(int64_t evaluations_max,
                                       const std::function<bool()>& cancelled) = 0;

  // The segments whose rows have all finished since the last call.
  virtual absl::StatusOr<std::vector<SolvedSegment>> TakeFinished() = 0;

  // Forgets a segment wherever its rows are; nothing is told of them. Unknown tickets are ignored.
  virtual void Drop(Ticket ticket) = 0;
};

}  // namespace hyperserve
