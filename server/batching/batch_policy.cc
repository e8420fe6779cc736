#include "server/batching/batch_policy.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {

BatchDecision DecideBatch(std::span<const QueueSnapshot> queues, Clock::TimePoint now,
                          Intake intake, const BatcherOptions& options) {
  BatchDecision decision;
  for (size_t i = 0; i < queues.size(); ++i) {
    const QueueSnapshot& queue = queues[i];
    const Clock::TimePoint overdue_at = queue.oldest + options.queue_delay_max;
    const bool ready =
        queue.under_way || queue.full || intake == Intake::kDraining || now >= overdue_at;
    if (!ready) {
      if (!decision.look_again || overdue_at < *decision.look_again) {
        decision.look_again = overdue_at;
      }
      continue;
    }
    const auto precedence = [](const QueueSnapshot& q) {
      return std::tie(q.last_turn, q.under_way, q.oldest);
    };
    if (!decision.serve || precedence(queue) < precedence(queues[*decision.serve])) {
      decision.serve = i;
    }
  }
  if (decision.serve) decision.look_again.reset();
  return decision;
}

absl::Status DecideAdmission(const Batcher::Depth& depth, const Arrival& arrival,
                             const BatcherOptions& options) {
  if (depth.rows + arrival.rows > options.queue_rows_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queues are full: ", depth.rows, " rows wait, ", arrival.rows,
                     " more would pass queue_rows_max = ", options.queue_rows_max, "; try again"));
  }
  if (depth.bytes + arrival.bytes > options.queue_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too much is pending: ", depth.bytes, " bytes of inputs and outputs, ", arrival.bytes,
        " more would pass queue_bytes_max = ", options.queue_bytes_max, "; try again"));
  }
  if (depth.macs + arrival.macs > options.pending_macs_max) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "too much work is pending: about %.2g MACs, %.2g more would pass pending_macs_max = %.2g; "
        "try again",
        static_cast<double>(depth.macs), static_cast<double>(arrival.macs),
        static_cast<double>(options.pending_macs_max)));
  }
  if (arrival.opens_queue && depth.queues >= options.live_queues_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many different plans at once: live_queues_max = ", options.live_queues_max,
        " are waiting or running; try again"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
