// Converts messages of hyperserve.v1 to our own terms and back: the messages that several calls
// share, and the replies of calls that solve nothing. The messages of one call are converted beside
// its handler (hyperserve_service.cc). Pure. A conversion never fails: a field that is spelled
// wrongly becomes an error value in the ask.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "server/calls/ask.h"
#include "server/calls/flow.h"
#include "server/calls/info.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// The plan that a request names, not yet resolved against a model. kInvalidArgument: no server
// would run it (an unknown method or enum value, a tier beside text, fewer than 1 step).
absl::StatusOr<Plan> PlanFromWire(const v1::Plan& wire);
// What all calls that solve have in common. A plan that is spelled wrongly becomes the status in
// AskTerms::plan. Copies all but the data of the condition, which the message keeps.
AskTerms TermsFromWire(const v1::SolveOptions& options);
// The rows borrow the data of the message, which must outlive them.
AskedRows RowsFromWire(const v1::Tensor& wire);

// Each ToWire fills an empty message and copies what it takes. Bytes are little-endian, as the
// arrays are; seconds stay seconds.
void ToWire(const HostTensor& tensor, v1::Tensor* wire);
// Also of a stream, whose lists may be empty.
void ToWire(const SolveInfo& info, v1::SolveInfo* wire);
// Fills a chunk, without the summary. `first_row` is the number of its first row.
void ToWire(const SampleAnswer& answer, uint64_t first_row, v1::SampleChunk* chunk);

void ToWire(const ServedModel& served, v1::ModelSummary* summary);
void ToWire(const ServedModel& served, v1::GetModelReply* reply);
void ToWire(const ServerFacts& facts, double uptime_seconds, v1::GetServerInfoReply* reply);

}  // namespace hyperserve
