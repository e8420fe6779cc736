// Solve: the initial value problem of any model, in either direction of a flow, with the outputs of
// a regressor and the states of a trajectory; and its derivatives, SolveVjp and SolveJvp. Pure; any
// thread may call.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/info.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// At most one of `vjp` and `jvp` is set. Borrows all rows from the message.
struct SolveAsk {
  AskTerms terms;
  // Where the solve starts: one of the two must be set; `state` wins.
  std::optional<AskedRows> inputs;            // x, before preprocessing: z(s0) = h_x(x)
  std::optional<AskedRows> state;             // z(s0) itself
  std::optional<std::array<double, 2>> span;  // absent: the model's
  // Strictly increasing depths within the span. Empty: none, or of a trajectory that is solved on
  // its own span the model's.
  std::vector<double> save_at;
  std::string direction;        // of a flow, as DirectionName; empty: of its field
  bool partial_states = false;  // rows that failed keep their last state, instead of NaN
  struct Vjp {
    std::optional<AskedRows> cotangent;  // of z(s1); must be set
  };
  struct Jvp {
    std::optional<AskedRows> start_tangent, condition_tangent;  // at least one of them
  };
  std::optional<Vjp> vjp;  // set: SolveVjp
  std::optional<Jvp> jvp;  // set: SolveJvp
};

// Owns its arrays. Without dimensions where nothing was asked for.
struct SolveAnswer {
  SolveInfo info;
  HostTensor state;                // z(s1), [rows, state shape]
  HostTensor saved;                // [rows, save_at, state shape]; empty: no save_at
  std::vector<double> saved_at;    // the depths of these
  HostTensor outputs;              // of a regressor, [rows, outputs]; NaN in rows that failed
  std::vector<double> stopped_at;  // the depth of each row's state; empty: no partial_states
  // SolveVjp: of the start, and of conditional models the condition of each row. SolveJvp: the
  // tangent of z(s1). NaN in rows that failed.
  HostTensor product, condition_product;
};

// Checks the ask and makes its work. kInvalidArgument: no start is set, the rows do not fit the
// model, the span or save_at is wrong, the vectors of a derivative do not fit, the reply or the
// work is over a limit. Else it fails as ResolvePlan does.
absl::StatusOr<Prepared> Prepare(const SolveAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// Makes the answer from what was solved; InfoOf and SetTimes have filled `info`.
SolveAnswer MakeAnswer(const SolveAsk& ask, const ServedModel& served, SolveInfo info,
                       WorkResult result);

}  // namespace hyperserve
