#include "core/engine/fused/solve_again.h"

#include <algorithm>
#include <map>
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

// Places that follow each other, from `from` on.
size_t StretchOf(std::span<const int64_t> places, size_t from) {
  size_t end = from + 1;
  while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
  return end - from;
}

void PutRows(const BatchResult& from, int64_t place, BatchResult& to) {
  std::ranges::copy(from.status, to.status.begin() + place);
  std::ranges::copy(from.nfe, to.nfe.begin() + place);
  std::ranges::copy(from.correction_evaluations, to.correction_evaluations.begin() + place);
  std::ranges::copy(from.macs, to.macs.begin() + place);
  for (const auto tensor : {&BatchResult::state, &BatchResult::log_density}) {
    const std::vector<std::byte>& bytes = (from.*tensor).bytes;
    const auto row_bytes = static_cast<int64_t>(bytes.size() / from.status.size());
    std::ranges::copy(bytes, (to.*tensor).bytes.begin() + place * row_bytes);
  }
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
