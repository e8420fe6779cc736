// The runs under way: it starts runs, keeps those that gave way, counts their places and measures
// their pace. No threads and no locks: a caller holds the batcher's lock, except for Start.
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

// Belongs to one BatchLoop. Destroys the runs that gave way when it goes.
class EnginePool {
 public:
  // Both must outlive the pool and its runs.
  EnginePool(const BatcherOptions& options, DeviceRuntime* runtime)
      : options_(options), runtime_(runtime) {}

  // The runs that gave way; no solver holds them, and each has pieces. Take returns the run of that
  // index in Look; GiveWay and Take make earlier indexes void.
  bool empty() const { return gave_way_.empty(); }
  std::vector<RunSnapshot> Look() const;
  // Precondition: the run has pieces.
  void GiveWay(std::unique_ptr<LiveRun> run);
  std::unique_ptr<LiveRun> Take(size_t index);

  // Counts a run against live_runs_max: reserve before Start, release when the run has ended.
  void Reserve(Place place) { ++Count(place); }
  void Release(Place place) { --Count(place); }
  // Of all runs that were reserved and not released, whoever holds them.
  PlacesTaken taken() const { return taken_; }

  // Starts a run for `rows` rows at once. Called without the lock, since it may allocate memory on
  // the device. Fails as DeviceRuntime::StartRun does.
  absl::StatusOr<std::unique_ptr<LiveRun>> Start(Queue* queue, Place place, int64_t rows) const;

  // Adds what the run has solved since the last call to the pace. Called after each turn.
  void Measure(LiveRun& run);
  // The mean over recent turns of all runs, in seconds a MAC; 0: nothing was measured yet.
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
