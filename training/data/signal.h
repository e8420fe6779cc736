// A periodic signal that a trajectory tracks (recipe.proto). Pure; any thread may call.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

class Signal {
 public:
  // kInvalidArgument: no components, a period that is not positive, or numbers that are not finite.
  static absl::StatusOr<Signal> Make(const training::Signal& recipe);

  std::vector<double> At(double s) const;  // one number for each component
  double spread() const { return recipe_.spread(); }

 private:
  explicit Signal(training::Signal recipe) : recipe_(std::move(recipe)) {}
  training::Signal recipe_;
};

}  // namespace hyperserve
