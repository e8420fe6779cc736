// Two-dimensional densities to learn, some of them conditional. Points are drawn from our own
// seeded generator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

// Immutable; a copy is two words. Any thread.
class Density {
 public:
  // kInvalidArgument: there is no density of that name. The names are checkerboard, circles,
  // gaussians, moons, pinwheel, rings and two_moons.
  static absl::StatusOr<Density> Named(std::string_view name);
  // Sorted.
  static std::vector<std::string> Names();

  // Numbers of the condition that a point is drawn with; 0: the density is not conditional.
  int64_t condition_features() const { return condition_features_; }

  // Rows first_row to first_row + rows - 1: x, y and then the condition. Each is a pure function of
  // seed and row number.
  std::vector<float> Draw(uint64_t seed, uint64_t first_row, int64_t rows) const;

 private:
  using DrawPoint = void (*)(std::span<const double> uniforms, std::span<double> row);
  Density(DrawPoint draw_point, int64_t condition_features)
      : draw_point_(draw_point), condition_features_(condition_features) {}
  DrawPoint draw_point_;
  int64_t condition_features_;
};

}  // namespace hyperserve
