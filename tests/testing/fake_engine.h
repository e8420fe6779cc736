// A device whose runs know no mathematics: the state of a row is a known function of what was
// asked, and its evaluations are those of its plan. A test can hold runs between evaluations and
// see what they were given.
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
  // A run, with all rows that it was ever given.
  struct SeenBatch {
    BatchSpec spec;
    std::vector<int64_t> segment_rows;
    int64_t rows = 0;
  };
  // One evaluation of f: the run's place among those that were started, and the rows in it.
  struct SeenEvaluation {
    size_t batch = 0;
    int64_t rows = 0;
    bool operator==(const SeenEvaluation&) const = default;
  };

  // Runs stop before each evaluation while the gate is closed.
  void CloseGate();
  void OpenGate();
  // Lets runs make `evaluations` more through the closed gate.
  void LetThrough(int evaluations);
  // Waits until so many runs have begun: rows were admitted.
  void WaitForBatches(size_t count);
  std::vector<SeenBatch> batches() const;
  int64_t evaluations() const;

  // All set before the first run; may be empty.
  std::function<absl::Status(const BatchSpec&)> refuse_run;
  std::function<absl::Status(const Segment&)> refuse_rows;
  // Asked at each evaluation, with the rows that share it; an error breaks the run.
  std::function<absl::Status(const std::vector<Segment>&)> break_run;
  std::function<void(const SeenEvaluation&)> on_evaluation;
  int64_t room = int64_t{1} << 40;  // of an empty run
  // Of adaptive rows, which have no K.
  std::function<int64_t(const Segment&)> adaptive_steps;

 private:
  friend class FakeRun;
  friend class FakeRuntime;
  size_t Started(const BatchSpec& spec);
  void Admitted(size_t batch, int64_t rows);
  // False: cancelled while waiting.
  bool PassGate(const std::function<bool()>& cancelled);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<SeenBatch> batches_;
  int64_t evaluations_ = 0;
  bool closed_ = false;
  int allowance_ = 0;
};

// What a row's state is: FakeRow of its first input value (F32), or of its noise row number.
inline float FakeRow(double first_value) { return static_cast<float>(2 * first_value + 1); }

// How many evaluations a step of the method takes, as the fake makes them.
int64_t FakeStages(const MethodChoice& method);

std::unique_ptr<DeviceRuntime> MakeFakeRuntime(std::shared_ptr<FakeEngineControl> control);

// A model that is an identity only: nothing may look into it.
std::shared_ptr<const Model> FakeModel();

}  // namespace hyperserve
