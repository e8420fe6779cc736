// What a call asks, as plain data of our own. The edge of a protocol (server/rpc) makes an ask from
// a message and checks nothing. A field that the message spells wrongly becomes an error value in
// the ask; Prepare returns it. So every protocol gets the same errors in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/condition_knots.h"
#include "core/plan/plan.h"

namespace hyperserve {

// Rows as they came, [rows, ...]. They are borrowed from the message, which must live until the
// call is answered. An error: the dtype is unknown; the message does not name the field.
using AskedRows = absl::StatusOr<TensorView>;

// The fields that every call that solves has.
struct AskTerms {
  std::string model;
  absl::StatusOr<Plan> plan = Plan{};  // an error: its spelling is wrong
  int64_t max_steps = 0;               // limit on the steps of an adaptive row; 0: steps_max
  int64_t generation = 0;              // of the correction to use; 0: the active one
  std::string request_id;              // empty: the server makes one
  int64_t max_reply_bytes = 0;         // limit on the reply; 0: reply_bytes_default
  // Of the numbers in the reply (ReplyDtype); nullopt: those of the tier. An error: it is unknown.
  absl::StatusOr<std::optional<Dtype>> reply_dtype = std::optional<Dtype>();
  // Of conditional models: [rows, condition shape], or one row for all.
  std::optional<AskedRows> condition = std::nullopt;
  // Where the condition changes with the depth: it is [rows, knots, condition shape] then, or [1,
  // knots, ...]. An error: the interpolation is unknown.
  std::optional<absl::StatusOr<ConditionKnots>> knots = std::nullopt;
  // Weights of guidance: [rows] or [1]; or one for each step, [rows, steps] or [1, steps].
  std::optional<AskedRows> guidance = std::nullopt;
  bool want_error_bound = false;  // of each row
  // Of a log-density that is estimated: how many for each row (0: kProbesDefault), and their seed.
  int64_t probes = 0;
  uint64_t probe_seed = 0;
};

}  // namespace hyperserve
