// From a request to work for the batcher: everything that can be wrong with it is found here,
// before it waits in any queue. Pure. Deadline and cancellation are the call's and are filled in
// later.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "server/batching/batcher.h"
#include "server/rpc/limits.h"
#include "server/rpc/resolve.h"

namespace hyperserve {

struct Prepared {
  std::shared_ptr<const ServedModel> served;  // pinned
  ResolvedPlan plan;
  Work work;
};

absl::StatusOr<Prepared> PrepareClassify(const v1::ClassifyRequest& request,
                                         std::shared_ptr<const ServedModel> served,
                                         const CallLimits& limits);
absl::StatusOr<Prepared> PrepareSample(const v1::SampleRequest& request,
                                       std::shared_ptr<const ServedModel> served,
                                       const CallLimits& limits);
absl::StatusOr<Prepared> PrepareLogProb(const v1::LogProbRequest& request,
                                        std::shared_ptr<const ServedModel> served,
                                        const CallLimits& limits);
absl::StatusOr<Prepared> PrepareSolve(const v1::SolveRequest& request,
                                      std::shared_ptr<const ServedModel> served,
                                      const CallLimits& limits);

// A stream of samples: the work of the whole stream, to be cut into chunks.
struct PreparedStream {
  Prepared whole;
  int64_t chunk_rows = 0;
};
absl::StatusOr<PreparedStream> PrepareStream(const v1::SampleStreamRequest& request,
                                             std::shared_ptr<const ServedModel> served,
                                             const CallLimits& limits);
// Rows [begin, begin + rows) of the stream.
Work ChunkOf(const Work& stream, int64_t begin, int64_t rows);

}  // namespace hyperserve
