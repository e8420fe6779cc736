// From what an engine gave to what goes over the wire. Pure.
//
// Rows that ended differently do not fail the call: NaN, and label -1, in the rows that failed.
#pragma once

#include <string>

#include "hyperserve/v1/hyperserve.pb.h"
#include "server/batching/batcher.h"
#include "server/rpc/prepare.h"

namespace hyperserve {

// What a reply says of its request, whatever the call.
struct ReplyContext {
  std::string request_id;
  std::string model;
  std::string plan;
  Tier tier = Tier::kExact;
  int64_t generation = 0;
  std::string base_digest;
  WorkTimes times;
};
ReplyContext ContextOf(const Prepared& prepared, std::string request_id);

void FillInfo(const ReplyContext& context, const WorkResult& result, v1::SolveInfo* info);
void FillClassify(const ReplyContext& context, const v1::ClassifyWant& want,
                  const std::vector<std::string>& labels, WorkResult result,
                  v1::ClassifyReply* reply);
void FillSample(const ReplyContext& context, WorkResult result, v1::SampleReply* reply);
void FillLogProb(const ReplyContext& context, WorkResult result, v1::LogProbReply* reply);
void FillSolve(const ReplyContext& context, const v1::SolveRequest& request, WorkResult result,
               v1::SolveReply* reply);
// A chunk without the summary.
void FillChunk(const ReplyContext& context, uint64_t first_row, WorkResult result,
               v1::SampleChunk* chunk);

// One value where all are equal.
template <class T>
std::vector<T> Collapse(const std::vector<T>& values) {
  for (const T& value : values) {
    if (value != values.front()) return values;
  }
  return {values.begin(), values.begin() + (values.empty() ? 0 : 1)};
}

v1::RowStatus RowStatusToWire(RowStatus status);

}  // namespace hyperserve
