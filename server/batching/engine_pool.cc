#include "server/batching/engine_pool.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "server/batching/batch_policy.h"

namespace hyperserve {
namespace {

// What all solvers did this long ago counts for 1 / e. The wait that the pace predicts is some
// tenths of a second. Over less time than that the mean follows every swing, and a flood finds
// each moment at which it is low: what is admitted then is late.
constexpr double kMemorySeconds = 1;

}  // namespace

std::vector<RunSnapshot> EnginePool::Look() const {
  std::vector<RunSnapshot> snapshots;
  snapshots.reserve(gave_way_.size());
  for (const std::unique_ptr<LiveRun>& run : gave_way_) {
    snapshots.push_back({.key = run->origin().queue->key,
                         .load = run->load(),
                         .room = run->room(),
                         .work = run->work(),
                         .work_to_end = run->work_to_end(),
                         .lead = run->lead(),
                         .served = run->served});
  }
  return snapshots;
}

void EnginePool::GiveWay(std::unique_ptr<LiveRun> run) { gave_way_.push_back(std::move(run)); }

std::unique_ptr<LiveRun> EnginePool::Take(size_t index) {
  std::unique_ptr<LiveRun> run = std::move(gave_way_[index]);
  gave_way_.erase(gave_way_.begin() + static_cast<ptrdiff_t>(index));
  return run;
}

absl::StatusOr<std::unique_ptr<LiveRun>> EnginePool::Start(Queue* queue, Place place,
                                                           int64_t rows) const {
  HS_ASSIGN_OR_RETURN(DeviceRuntime::StartedRun started, runtime_->StartRun(queue->spec, rows));
  const LiveRun::Origin origin{
      .queue = queue, .place = place, .device = std::string(runtime_->device())};
  return std::make_unique<LiveRun>(options_, origin, std::move(started));
}

void EnginePool::Measure(LiveRun& run) {
  const LiveRun::Spent spent = run.TakeSpent();
  const double kept = std::exp(-spent.seconds / (kMemorySeconds * options_.solvers));
  spent_.macs = kept * spent_.macs + spent.macs;
  spent_.seconds = kept * spent_.seconds + spent.seconds;
}

}  // namespace hyperserve
