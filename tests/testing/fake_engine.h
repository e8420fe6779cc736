// A device whose runs do no mathematics: the state of a row is FakeRow of its input, and its number
// of evaluations is that of its plan. A test can stop runs between evaluations and see their rows.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"

namespace hyperserve {

// Shared by a test and the runs on the solver threads. Thread-safe.
class FakeEngineControl {
 public:
  // A run, with all rows that were ever admitted to it.
  struct SeenBatch {
    BatchSpec spec;
    std::vector<int64_t> segment_rows;
    int64_t rows = 0;
  };
  // One evaluation of f: the index of its run in the order of starts, and the rows in it.
  struct SeenEvaluation {
    size_t batch = 0;
    int64_t rows = 0;
    bool operator==(const SeenEvaluation&) const = default;
  };

  // While the gate is closed, runs stop before each evaluation.
  void CloseGate();
  void OpenGate();
  // Lets runs make this many evaluations while the gate stays closed.
  void LetThrough(int evaluations);
  // Waits until this many runs have begun, that is, have been given rows.
  void WaitForBatches(size_t count);
  std::vector<SeenBatch> batches() const;
  int64_t evaluations() const;

  // The test sets all of these before the first run. Functions may be empty.
  std::function<absl::Status(const BatchSpec&)> refuse_run;
  std::function<absl::Status(const Segment&)> refuse_rows;
  // Called at each evaluation with the rows that share it; an error fails the run.
  std::function<absl::Status(const std::vector<Segment>&)> break_run;
  std::function<void(const SeenEvaluation&)> on_evaluation;
  int64_t room = int64_t{1} << 40;  // of an empty run
  bool whole_solves = false;        // each Advance ends all rows, as a fused engine's does
  // The number of steps of an adaptive row, which has no K.
  std::function<int64_t(const Segment&)> adaptive_steps;

 private:
  friend class FakeRun;
  friend class FakeRuntime;
  size_t Started(const BatchSpec& spec);
  void Admitted(size_t batch, int64_t rows);
  // False: cancelled while it waited.
  bool PassGate(const std::function<bool()>& cancelled);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<SeenBatch> batches_;
  int64_t evaluations_ = 0;
  bool closed_ = false;
  int allowance_ = 0;
};

// The state of a row: FakeRow of its first input value (F32), or of its row number for noise.
inline float FakeRow(double first_value) { return static_cast<float>(2 * first_value + 1); }

// How many evaluations the fake makes for a step of the method.
int64_t FakeStages(const MethodChoice& method);

std::unique_ptr<DeviceRuntime> MakeFakeRuntime(std::shared_ptr<FakeEngineControl> control);

// A pointer that only identifies a model. Never dereference it.
std::shared_ptr<const Model> FakeModel();

}  // namespace hyperserve
