#include "server/batching/admission.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

// Of the time until the deadline that is left beside the own solve. A rented machine was seen to
// change its speed by a factor of 1.7 from one second to the next.
constexpr double kWaitShare = 0.5;
// What one client alone leaves free of each limit.
constexpr int64_t kReserve = 8;
// Nobody is sent away for longer than this: predictions of more are guesses.
constexpr double kRetryMaxSeconds = 30;

// One limit: what is taken of it, by all and by the client, and what the request adds.
struct Line {
  std::string_view limit_name, what;
  int64_t all = 0, own = 0, more = 0, limit = 0;
};

int64_t ShareOf(int64_t limit, int64_t sharers) {
  return sharers > 1 ? std::max<int64_t>(1, limit / sharers) : limit - limit / kReserve;
}

absl::Status CheckLine(const Line& line, const Pending& pending) {
  const auto number = [](int64_t value) {
    return value < 10'000'000 ? absl::StrCat(value)
                              : absl::StrFormat("%.2g", static_cast<double>(value));
  };
  if (line.all + line.more > line.limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too much is pending: ", number(line.all), " ", Absl(line.what), ", ", number(line.more),
        " more would pass ", Absl(line.limit_name), " = ", number(line.limit), "; try again"));
  }
  const int64_t share = ShareOf(line.limit, pending.sharers);
  if (pending.own_live > 0 && line.more > 0 && line.own + line.more > share) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this client has its share pending: ", number(line.own), " ", Absl(line.what), ", ",
        number(line.more), " more would pass ", number(share), " of ", Absl(line.limit_name), " = ",
        number(line.limit),
        pending.sharers > 1 ? absl::StrCat(", which ", pending.sharers, " clients share")
                            : ", of which a part stays free for others",
        "; try again"));
  }
  return absl::OkStatus();
}

absl::Status CheckLimits(const Pending& pending, const Arrival& arrival,
                         const BatcherOptions& options) {
  const QueueDepth &all = pending.all, &own = pending.own;
  const Line lines[] = {
      {"queue_rows_max", "rows wait", all.rows, own.rows, arrival.rows, options.queue_rows_max},
      {"queue_bytes_max", "bytes of inputs and outputs", all.bytes, own.bytes, arrival.bytes,
       options.queue_bytes_max},
      {"pending_macs_max", "MACs", all.macs, own.macs, arrival.macs, options.pending_macs_max},
      {"live_queues_max", "different plans wait or run", all.queues, own.queues,
       arrival.opens_queue ? 1 : 0, options.live_queues_max}};
  for (const Line& line : lines) HS_RETURN_IF_ERROR(CheckLine(line, pending));
  return absl::OkStatus();
}

}  // namespace

Admission DecideAdmission(const Pending& pending, const Arrival& arrival,
                          const BatcherOptions& options) {
  const auto later = [](absl::Status status, double seconds) {
    const double bounded = std::clamp(seconds, 0.0, kRetryMaxSeconds);
    return Admission{
        .status = std::move(status),
        .retry_after = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(1e3 * bounded)))};
  };
  const double wait = pending.pace * pending.cost_before / options.solvers;
  const absl::Status within = CheckLimits(pending, arrival, options);
  // Half of what goes before it: by then there is room, unless others were faster.
  if (!within.ok()) return later(within, wait / 2);
  const double own = pending.pace * arrival.cost;
  const double bearable = kWaitShare * std::max(0.0, arrival.seconds_left - own);
  if (pending.idle_solver || wait <= bearable) return {};
  return later(
      absl::ResourceExhaustedError(absl::StrFormat(
          "overloaded: the work before this request takes about %.3g s and its own %.3g s, "
          "too much for a deadline in %.3g s; try again later, or with a longer deadline",
          wait, own, arrival.seconds_left)),
      wait - bearable);
}

}  // namespace hyperserve
