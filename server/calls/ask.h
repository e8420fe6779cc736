// What all calls ask, in our own terms. The edge of a protocol makes an ask from a message and
// checks nothing: what a message spells wrongly travels as the error that it is, so that every
// protocol is refused in the same order and the same words.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"

namespace hyperserve {

// What every call that solves has in common.
struct AskTerms {
  std::string model;
  absl::StatusOr<Plan> plan = Plan{};  // or what is wrong with its spelling
  int64_t max_steps = 0;               // of an adaptive row; 0: steps_max
  int64_t generation = 0;              // pinned; 0: the active one
  std::string request_id;              // empty: the server makes one
  int64_t max_reply_bytes = 0;         // 0: reply_bytes_default
};

// Rows as they came, [rows, ...]: borrowed from the message, which outlives the call. An error
// says, without the field's name, why the dtype is none of ours.
using AskedRows = absl::StatusOr<TensorView>;

}  // namespace hyperserve
