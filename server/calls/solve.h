// Solve: the bare initial value problem of any model. Pure.
#pragma once

#include <array>
#include <memory>
#include <optional>
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

struct SolveAsk {
  AskTerms terms;
  // Where it starts: one of the two.
  std::optional<AskedRows> inputs;            // before preprocessing: z(s0) = h_x(x)
  std::optional<AskedRows> state;             // z(s0) itself
  std::optional<std::array<double, 2>> span;  // the model's where absent
  std::vector<double> save_at;
  bool partial_states = false;  // rows that failed hold how far they came, instead of NaN
};

struct SolveAnswer {
  SolveInfo info;
  HostTensor state;  // [rows, state shape]
  HostTensor saved;  // [rows, save_at, state shape]; empty: no save_at
};

absl::StatusOr<Prepared> Prepare(const SolveAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// `info` as InfoOf and SetTimes leave it.
SolveAnswer MakeAnswer(const SolveAsk& ask, const ServedModel& served, SolveInfo info,
                       WorkResult result);

}  // namespace hyperserve
