// Two-dimensional densities to learn. Points are drawn from our own seeded generator.
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
  // kInvalidArgument: there is no density of that name. The names are checkerboard, circles,
  // gaussians, moons, pinwheel and rings.
  static absl::StatusOr<Density> Named(std::string_view name);
  static std::vector<std::string> Names();

  // Points first_row to first_row + rows - 1 as x, y, x, y, ... Each is a pure function of seed and
  // row number.
  std::vector<float> Draw(uint64_t seed, uint64_t first_row, int64_t rows) const;

 private:
  using DrawPoint = void (*)(std::span<const double> uniforms, std::span<double> point);
  explicit Density(DrawPoint draw_point) : draw_point_(draw_point) {}
  DrawPoint draw_point_;
};

}  // namespace hyperserve
