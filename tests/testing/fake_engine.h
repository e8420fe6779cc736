// An engine without mathematics: the state of a row is a known function of what was asked, the
// number of steps is the plan's, and a test can hold it between steps and see what it was given.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace hyperserve {

// Shared by a test and the engines on the solver threads. Thread-safe.
class FakeEngineControl {
 public:
  struct SeenBatch {
    BatchSpec spec;
    std::vector<int64_t> segment_rows;
    int64_t rows = 0;
  };

  // Engines stop before each step while the gate is closed.
  void CloseGate();
  void OpenGate();
  // Lets engines take `steps` more steps through the closed gate.
  void LetThrough(int steps);
  // Waits until so many batches have begun.
  void WaitForBatches(size_t count);
  std::vector<SeenBatch> batches() const;
  int64_t steps_taken() const;

  // Asked at Begin; an error refuses the batch. Set before the first batch.
  std::function<absl::Status(const Batch&)> refuse;

 private:
  friend class FakeEngine;
  void Saw(SeenBatch batch);
  // False: cancelled while waiting.
  bool PassGate(const std::function<bool()>& cancelled);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<SeenBatch> batches_;
  int64_t steps_taken_ = 0;
  bool closed_ = false;
  int allowance_ = 0;
};

// What a row's state is: FakeRow of its first input value (F32), or of its noise row number.
inline float FakeRow(double first_value) { return static_cast<float>(2 * first_value + 1); }

std::unique_ptr<Engine> MakeFakeEngine(std::shared_ptr<FakeEngineControl> control);

// A model that is an identity only: nothing may look into it.
std::shared_ptr<const Model> FakeModel();

}  // namespace hyperserve
