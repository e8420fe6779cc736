// What is under way: the runs that the device's runtime lent, those that gave way, and how fast
// they are. No threads and no locks; but for Start, whoever calls holds the batcher's lock.
// Internal to this folder.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "server/batching/batch_policy.h"
#include "server/batching/batcher_options.h"
#include "server/batching/live_run.h"
#include "server/batching/queue_set.h"

namespace hyperserve {

class EnginePool {
 public:
  // Both must outlive this and its runs.
  EnginePool(const BatcherOptions& options, DeviceRuntime* runtime)
      : options_(options), runtime_(runtime) {}

  // Runs that gave way: no solver holds them.
  bool empty() const { return gave_way_.empty(); }
  std::vector<RunSnapshot> Look() const;
  void GiveWay(std::unique_ptr<LiveRun> run);
  std::unique_ptr<LiveRun> Take(size_t index);

  // A place among live_runs_max, from before Start until the run has ended.
  void Reserve(Place place) { ++Count(place); }
  void Release(Place place) { --Count(place); }
  PlacesTaken taken() const { return taken_; }

  // A run for `rows` at once. Called without the lock: it may take memory of the device.
  absl::StatusOr<std::unique_ptr<LiveRun>> Start(Queue* queue, Place place, int64_t rows) const;

  void Measure(LiveRun& run);
  // The recent mean over all runs.
  Pace pace() const { return spent_.macs > 0 ? spent_.seconds / spent_.macs : 0; }

 private:
  int64_t& Count(Place place) { return place == Place::kAny ? taken_.any : taken_.brief; }

  const BatcherOptions& options_;
  DeviceRuntime* const runtime_;
  std::vector<std::unique_ptr<LiveRun>> gave_way_;
  PlacesTaken taken_;
  LiveRun::Spent spent_;  // older turns count for less
};

}  // namespace hyperserve
