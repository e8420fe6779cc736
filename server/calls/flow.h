// The calls of flows: Sample, SampleStream and LogProb. Pure.
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
#include "server/registry/served_model.h"

namespace hyperserve {

struct SampleAsk {
  AskTerms terms;
  int64_t rows = 0;
  uint64_t seed = 0;
  uint64_t first_row = 0;
  bool log_density = false;
};

struct SampleAnswer {
  SolveInfo info;
  HostTensor samples;      // [rows, dimensions]; NaN in rows that failed
  HostTensor log_density;  // F64 [rows], likewise; empty: not asked for
};

absl::StatusOr<Prepared> Prepare(const SampleAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// `info` as InfoOf and SetTimes leave it.
SampleAnswer MakeAnswer(const SampleAsk& ask, const ServedModel& served, SolveInfo info,
                        WorkResult result);

// The same samples in chunks.
struct StreamAsk {
  SampleAsk sample;
  int64_t chunk_rows = 0;  // 0: the server chooses
};

struct PreparedStream {
  Prepared first_row;  // work of the first row alone
  int64_t rows = 0;
  int64_t chunk_rows = 0;
};
absl::StatusOr<PreparedStream> PrepareStream(const StreamAsk& ask,
                                             std::shared_ptr<const ServedModel> served,
                                             const CallLimits& limits);
// Rows [begin, begin + rows) of the stream.
Work ChunkOf(const PreparedStream& stream, int64_t begin, int64_t rows);

struct LogProbAsk {
  AskTerms terms;
  AskedRows inputs = TensorView{};  // [rows, dimensions]: F32 (F64 in tier double)
};

struct LogProbAnswer {
  SolveInfo info;
  HostTensor log_prob;  // F64 [rows]; NaN in rows that failed
};

absl::StatusOr<Prepared> Prepare(const LogProbAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
LogProbAnswer MakeAnswer(const LogProbAsk& ask, const ServedModel& served, SolveInfo info,
                         WorkResult result);

}  // namespace hyperserve
