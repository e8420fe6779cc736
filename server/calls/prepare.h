// From a job to work for the batcher, and the checks that calls share. Everything that can be wrong
// with a call is found here and in its own file, before it waits in any queue. Pure. Deadline and
// cancellation are the caller's and are filled in later.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/job.h"
#include "server/calls/limits.h"
#include "server/calls/resolve.h"
#include "server/registry/served_model.h"

namespace hyperserve {

struct Prepared {
  std::shared_ptr<const ServedModel> served;  // pinned
  ResolvedPlan plan;
  Work work;
};

// The one place that knows the form in which batcher and engines take work. Fails as SizeOf does.
absl::StatusOr<Prepared> Assemble(Job job, const CallLimits& limits);

// kInvalidArgument where the model is of another kind than the call needs.
absl::Status CheckKind(const ServedModel& served, ModelKind wanted, std::string_view call);

// Bytes that a reply may take: what the request asks, else the default. kInvalidArgument where it
// asks too much.
absl::StatusOr<int64_t> ReplyBytesLimit(const AskTerms& terms, const CallLimits& limits);
// How many rows, of which each takes `row_bytes`, fit into a reply of so many bytes; at least 1.
int64_t RowsThatFit(int64_t reply_bytes, int64_t row_bytes);
// kInvalidArgument where the reply would be larger than it may be. `way_out` says what to do.
absl::Status CheckReplyFits(int64_t rows, int64_t row_bytes, const AskTerms& terms,
                            const CallLimits& limits, std::string_view way_out);
inline constexpr std::string_view kFewerRows = "send fewer rows in one request";

// Of one number of a state or an output.
int64_t NumberBytes(Tier tier);

}  // namespace hyperserve
