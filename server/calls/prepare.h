// Makes a job into work for the batcher, and holds the checks that calls share. Every error of a
// call is found here or in the call's own file, before the call waits in a queue. Pure; any thread
// may call. The deadline and the cancellation are not set here: Call::Bind sets them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/job.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/calls/task.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// One plan of an automatic plan per row.
struct Rung {
  std::string plan;                    // canonical spelling
  std::optional<double> bound_factor;  // as ResolvedPlan's
  Work work;                           // of all rows of the request
};

// Ready for Call::Bind and SubmitRungs. Holds the model and the generation until the answer.
struct Prepared {
  std::shared_ptr<const ServedModel> served;  // pinned
  ResolvedPlan plan;
  Work work;                     // without deadline and cancellation
  std::vector<Rung> later = {};  // one for each of plan.later
};

// The one function that knows the form in which the batcher and the engines take work. Fails as
// SizeOf does, also where one of the later plans alone would take too much for all rows.
absl::StatusOr<Prepared> Assemble(Job job, const CallLimits& limits);

// kInvalidArgument: the model is of another kind than the call needs.
absl::Status CheckKind(const ServedModel& served, ModelKind wanted, std::string_view call);

// The shape of one row's condition, at the task's knots where it has some; empty: the model has
// none.
Shape ConditionShape(const Model& model, const Task& task);
// The numbers in it; 0: the model has none.
int64_t ConditionNumbers(const Job& job);

// A copy of the conditions of the rows, at the task's knots where it has some: one for each, or one
// for all. Without dimensions where the
// model has none. Where none came, the model's no_condition for all rows. kInvalidArgument: the
// model has none and one came, or it needs one and none came; else as TakeRows. `rows_max` bounds
// them as it bounds the rows.
absl::StatusOr<HostTensor> TakeCondition(const AskTerms& terms, const ServedModel& served,
                                         const Task& task, int64_t rows, Tier tier,
                                         int64_t rows_max);

// What the plan depends on beside the task of a call: sets the task's knots, the weights of
// guidance of the rows, one row for each or one for all, and the task's part of them. No guidance
// came, or all weights are 1: there is none. kInvalidArgument: knots that do not rise or are too
// many, knots or guidance without a condition, guidance where the model has no no_condition; else
// as TakeRows.
absl::Status TakeKnotsAndGuidance(const AskTerms& terms, int64_t rows, int64_t rows_max,
                                  const CallLimits& limits, Job& job);

// Sets by how many probes the task's log-density is estimated, and their seed: where it has one, is
// no derivative and the state has more than kTangentsMax dimensions. kInvalidArgument: a number of
// probes outside kProbesMin to kProbesMax.
inline constexpr int64_t kProbesDefault = 8;
// Checks the number also where no log-density is estimated, so that a mistake never passes.
absl::Status TakeProbes(const AskTerms& terms, Job& job);

// A copy of a tangent of the condition, by the same rules; without dimensions where none came.
absl::StatusOr<HostTensor> TakeConditionTangent(const std::optional<AskedRows>& asked,
                                                const ServedModel& served, const Task& task,
                                                int64_t rows, Tier tier, int64_t rows_max);

// Bytes of one row that a derivative keeps while it is under way: the state at each step.
int64_t KeptRowBytes(const Job& job);

// The bytes that the reply may take: what the request asks for, else the default.
// kInvalidArgument: it asks for more than reply_bytes_max.
absl::StatusOr<int64_t> ReplyBytesLimit(const AskTerms& terms, const CallLimits& limits);
// How many rows of `row_bytes` each fit into a reply of `reply_bytes`; at least 1.
int64_t RowsThatFit(int64_t reply_bytes, int64_t row_bytes);
// kInvalidArgument: the reply would be larger than ReplyBytesLimit. `way_out` tells the caller what
// to do instead.
absl::Status CheckReplyFits(int64_t rows, int64_t row_bytes, const AskTerms& terms,
                            const CallLimits& limits, std::string_view way_out);
inline constexpr std::string_view kFewerRows = "send fewer rows in one request";

// Bytes of one number of a state or an output while it is solved: 8 in tier double, else 4.
int64_t NumberBytes(Tier tier);

// The dtype of states, samples, logits and probabilities in the reply: what the request asks for,
// else F64 in tier double and F32 in the others. kInvalidArgument: it asks for none of F16, F32 and
// F64, or for F64 where the tier solves in float32.
absl::StatusOr<Dtype> ReplyDtype(const AskTerms& terms, Tier tier);
// The tensor in that dtype; what is too large for F16 is infinite there. Precondition: ReplyDtype
// is OK.
HostTensor ForReply(HostTensor tensor, const AskTerms& terms);

}  // namespace hyperserve
