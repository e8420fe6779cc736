// The calls of flows: Sample, SampleStream, LogProb and LogProbGradient. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/info.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/calls/rows.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// Samples first_row to first_row + rows - 1 of the stream that `seed` begins.
struct SampleAsk {
  AskTerms terms;
  int64_t rows = 0;
  uint64_t seed = 0;
  uint64_t first_row = 0;
  bool log_density = false;  // asks for log p(x) of each sample x
};

// Owns its arrays. Samples have the dtype of ReplyDtype.
struct SampleAnswer {
  SolveInfo info;
  HostTensor samples;      // [rows, state shape]; NaN in rows that failed
  HostTensor log_density;  // F64 [rows]; NaN in rows that failed; empty: not asked for
};

// Checks the ask and makes its work. kInvalidArgument: the model is no flow, the rows or their
// numbers are out of range, the reply or the work is over a limit. Else it fails as ResolvePlan
// does.
absl::StatusOr<Prepared> Prepare(const SampleAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// Makes the answer from what was solved; InfoOf and SetTimes have filled `info`.
SampleAnswer MakeAnswer(const SampleAsk& ask, const ServedModel& served, SolveInfo info,
                        WorkResult result);

// The same samples in chunks of `chunk_rows`; the last chunk may be shorter.
struct StreamAsk {
  SampleAsk sample;
  int64_t chunk_rows = 0;  // 0: the server chooses
};

// Shared by the chunks of one stream; immutable once PrepareStream returned it.
struct PreparedStream {
  Prepared first_row;  // the work of the first row alone: ChunkOf scales it, and the later ones
  std::shared_ptr<const RowsOfJob>
      brought;             // of the whole stream: condition and guidance, as Job's
  int64_t rows = 0;        // of the whole stream
  int64_t chunk_rows = 0;  // at least 1
};
// Fails as Prepare does. The limits on a request's rows, reply and work hold for one chunk;
// stream_rows_max holds for the stream.
absl::StatusOr<PreparedStream> PrepareStream(const StreamAsk& ask,
                                             std::shared_ptr<const ServedModel> served,
                                             const CallLimits& limits);
// Rows [begin, begin + rows) of the stream. Precondition: 0 <= begin and begin + rows <=
// stream.rows. Never fails: PrepareStream checked the largest chunk.
Prepared ChunkOf(const PreparedStream& stream, int64_t begin, int64_t rows);

// log p(x) of given points x.
struct LogProbAsk {
  AskTerms terms;
  AskedRows inputs = TensorView{};  // [rows, state shape]: F32 (F64 in tier double)
  bool gradient = false;            // asks for the gradient of log p as well
  uint64_t first_row = 0;           // the number of the first row, for its probes
};

// Owns its arrays.
struct LogProbAnswer {
  SolveInfo info;
  HostTensor log_prob;  // F64 [rows]; NaN in rows that failed, as in both gradients
  // By x, [rows, state shape], and by the condition of each row, [rows, (knots,) features]; empty:
  // not asked for, or the model has no condition.
  HostTensor gradient, condition_gradient;
};

// As for SampleAsk. kInvalidArgument also where the points do not fit the model.
absl::StatusOr<Prepared> Prepare(const LogProbAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
LogProbAnswer MakeAnswer(const LogProbAsk& ask, const ServedModel& served, SolveInfo info,
                         WorkResult result);

}  // namespace hyperserve
