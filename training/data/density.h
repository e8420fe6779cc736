// Two-dimensional densities to learn, drawn from our own seeded generator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

class Density {
 public:
  // kInvalidArgument names the known ones: checkerboard, gaussians, moons, pinwheel, rings.
  static absl::StatusOr<Density> Named(std::string_view name);
  static std::vector<std::string> Names();

  // Points [first_row, first_row + rows), x and y of each in turn: a pure function of (seed, row).
  std::vector<float> Draw(uint64_t seed, uint64_t first_row, int64_t rows) const;

 private:
  using DrawPoint = void (*)(std::span<const double> uniforms, std::span<double> point);
  explicit Density(DrawPoint draw_point) : draw_point_(draw_point) {}
  DrawPoint draw_point_;
};

}  // namespace hyperserve
