// hyperserve.v1 to our own terms and back: what several calls share, and what the calls that solve
// nothing tell. Messages of one call alone are converted beside its handler
// (hyperserve_service.cc). Pure. A conversion never fails: what is spelled wrongly travels in the
// ask as an error.
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

// The plan that was asked for, not yet resolved against a model. kInvalidArgument for what no
// server would run: unknown methods and enum values, a tier beside text, steps < 1 ...
absl::StatusOr<Plan> PlanFromWire(const v1::Plan& wire);
AskTerms TermsFromWire(const v1::SolveOptions& options);
// Borrows from the message.
AskedRows RowsFromWire(const v1::Tensor& wire);

void ToWire(const HostTensor& tensor, v1::Tensor* wire);
void ToWire(const SolveInfo& info, v1::SolveInfo* wire);
// A chunk without the summary.
void ToWire(const SampleAnswer& answer, uint64_t first_row, v1::SampleChunk* chunk);

void ToWire(const ServedModel& served, v1::ModelSummary* summary);
void ToWire(const ServedModel& served, v1::GetModelReply* reply);
void ToWire(const ServerFacts& facts, double uptime_seconds, v1::GetServerInfoReply* reply);

}  // namespace hyperserve
