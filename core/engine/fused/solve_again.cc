#include "core/engine/fused/solve_again.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/engine/paired_run.h"
#include "core/engine/readable/readable_run.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

constexpr int64_t kEvaluationsAtOnce = 64;

// Places that follow each other, from `from` on.
size_t StretchOf(std::span<const int64_t> places, size_t from) {
  size_t end = from + 1;
  while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
  return end - from;
}

void PutRows(const HostTensor& from, int64_t place, HostTensor& to) {
  if (from.shape.empty()) return;
  const auto row_bytes = static_cast<int64_t>(from.bytes.size()) / from.shape[0];
  std::ranges::copy(from.bytes, to.bytes.begin() + place * row_bytes);
}

void PutRows(const BatchResult& from, int64_t place, BatchResult& to) {
  std::ranges::copy(from.status, to.status.begin() + place);
  if (!to.depth.empty()) std::ranges::copy(from.depth, to.depth.begin() + place);
  std::ranges::copy(from.nfe, to.nfe.begin() + place);
  std::ranges::copy(from.correction_evaluations, to.correction_evaluations.begin() + place);
  std::ranges::copy(from.macs, to.macs.begin() + place);
  PutRows(from.state, place, to.state);
  PutRows(from.outputs, place, to.outputs);
  PutRows(from.log_density, place, to.log_density);
}

}  // namespace

absl::Status SolveAgain(const BatchSpec& spec, const StreamLease& stream, const Segment& segment,
                        std::span<const int64_t> places, const std::function<bool()>& cancelled,
                        BatchResult& result, int64_t bucket) {
  if (places.empty()) return absl::OkStatus();
  BatchSpec exact = spec;
  exact.tier = Tier::kExact;
  const auto make = [&](const BatchSpec& one) { return MakeReadableRun(one, stream, bucket); };
  const std::unique_ptr<Run> run =
      SolvesStateApart(exact, stream->device().is_cuda())
          ? PairRuns(make(StateAlone(exact)), make(DensityAlone(exact)))
          : make(exact);
  for (size_t begin = 0; begin < places.size(); begin += bucket) {
    const auto part = places.subspan(begin, std::min<size_t>(bucket, places.size() - begin));
    std::map<Ticket, int64_t> first;
    for (size_t at = 0; at < part.size();) {
      const size_t rows = StretchOf(part, at);
      HS_ASSIGN_OR_RETURN(const Ticket ticket,
                          run->Admit(RowsOf(segment, part[at], static_cast<int64_t>(rows))));
      first[ticket] = part[at];
      at += rows;
    }
    for (bool done = false; !done;) {
      HS_ASSIGN_OR_RETURN(done, run->Advance(kEvaluationsAtOnce, cancelled));
    }
    HS_ASSIGN_OR_RETURN(const std::vector<SolvedSegment> solved, run->TakeFinished());
    for (const SolvedSegment& one : solved) PutRows(one.rows, first.at(one.ticket), result);
  }
  result.solved_again += static_cast<int64_t>(places.size());
  return absl::OkStatus();
}

}  // namespace hyperserve
