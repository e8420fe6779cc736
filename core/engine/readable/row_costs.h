// What rows of a batch cost, as their results tell it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/model/net/model.h"

namespace hyperserve {

// Immutable; any thread may call.
class RowCosts {
 public:
  // Reads the costs of the spec's nets; keeps a learned solver alive, and nothing else of the spec.
  explicit RowCosts(const BatchSpec& spec);

  // Appends the costs of one row with so many evaluations to nfe, correction_evaluations and macs
  // of the result: those that it would have alone.
  void Append(int64_t nfe, int64_t correction_evaluations, BatchResult& result) const;

  // The multiply-accumulates of one row. The two together are those of a whole solve.
  int64_t SolveMacs(int64_t nfe, int64_t correction_evaluations) const;
  // Once a row, whatever its number of evaluations; of a Jacobian-vector product twice.
  int64_t maps_macs() const { return maps_macs_; }

 private:
  int64_t maps_macs_ = 0;  // of the input and the output map
  int64_t passes_ = 1;     // one more for each tangent
  int64_t field_macs_ = 0, correction_macs_ = 0;
  bool with_distance_ = false;
  std::shared_ptr<const Hypersolver> learned_;  // set where the correction is a learned solver
};

}  // namespace hyperserve
