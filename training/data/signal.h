// A periodic signal that a trajectory tracks (recipe.proto). Pure; any thread may call.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {

// mean + sum_k (sine_k sin(k w s) + cosine_k cos(k w s)) for each component, with w = 2 pi / period
// and k from 1.
class Signal {
 public:
  // kInvalidArgument: no components, a period that is not positive, or numbers that are not finite.
  static absl::StatusOr<Signal> Make(const training::Signal& recipe);

  std::vector<double> At(double s) const;  // one number for each component
  // Makes rows of standard normals into rows around At(s).
  void Surround(double s, std::span<float> rows) const;
  // Writes At of these depths, one after the other, into each row.
  void Repeat(const std::vector<double>& depths, std::span<float> rows) const;

 private:
  explicit Signal(training::Signal recipe) : recipe_(std::move(recipe)) {}
  training::Signal recipe_;
};

}  // namespace hyperserve
