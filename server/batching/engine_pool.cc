#include "server/batching/engine_pool.h"

#include <string>
#include <utility>

#include "core/base/status.h"
#include "server/batching/batch_policy.h"

namespace hyperserve {
namespace {

// What a turn counts for after the next one: the mean is over some twenty turns.
constexpr double kForget = 0.95;

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
  spent_.macs = kForget * spent_.macs + spent.macs;
  spent_.seconds = kForget * spent_.seconds + spent.seconds;
}

}  // namespace hyperserve
