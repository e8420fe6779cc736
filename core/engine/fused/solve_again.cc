#include "core/engine/fused/solve_again.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/engine/readable/readable_run.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// The nets see this many rows, however many there are: so the bits of a row are the same in any
// company.
constexpr int64_t kBucket = 1024;
constexpr int64_t kEvaluationsAtOnce = 64;

Segment RowOf(const Segment& segment, int64_t place) {
  Segment row = segment;
  row.rows = 1;
  row.first_row += static_cast<uint64_t>(place);
  row.data = RowsOf(segment.data, place, 1);
  return row;
}

// Row 0 of `from` becomes row `place` of `to`.
void PutRow(const BatchResult& from, int64_t place, BatchResult& to) {
  const auto at = static_cast<size_t>(place);
  to.status[at] = from.status[0];
  to.nfe[at] = from.nfe[0];
  to.correction_evaluations[at] = from.correction_evaluations[0];
  to.macs[at] = from.macs[0];
  std::copy(from.state.bytes.begin(), from.state.bytes.end(),
            to.state.bytes.begin() + place * static_cast<int64_t>(from.state.bytes.size()));
}

}  // namespace

absl::Status SolveAgain(const BatchSpec& spec, const StreamLease& stream, const Segment& segment,
                        std::span<const int64_t> places, const std::function<bool()>& cancelled,
                        BatchResult& result) {
  if (places.empty()) return absl::OkStatus();
  BatchSpec exact = spec;
  exact.tier = Tier::kExact;
  const std::unique_ptr<Run> run = MakeReadableRun(exact, stream, kBucket);
  for (size_t begin = 0; begin < places.size(); begin += kBucket) {
    const auto part = places.subspan(begin, std::min<size_t>(kBucket, places.size() - begin));
    std::vector<Ticket> tickets;
    for (const int64_t place : part) {
      HS_ASSIGN_OR_RETURN(tickets.emplace_back(), run->Admit(RowOf(segment, place)));
    }
    for (bool done = false; !done;) {
      HS_ASSIGN_OR_RETURN(done, run->Advance(kEvaluationsAtOnce, cancelled));
    }
    HS_ASSIGN_OR_RETURN(const std::vector<SolvedSegment> solved, run->TakeFinished());
    for (const SolvedSegment& one : solved) {
      PutRow(one.rows, part[static_cast<size_t>(one.ticket - tickets.front())], result);
    }
  }
  result.solved_again += static_cast<int64_t>(places.size());
  return absl::OkStatus();
}

}  // namespace hyperserve
