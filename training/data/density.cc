#include "training/data/density.h"

#include <array>
#include <cmath>
#include <numbers>

#include "absl/strings/str_join.h"
#include "training/data/random.h"

namespace hyperserve {
namespace {

constexpr double kPi = std::numbers::pi;

// One of `count` equally likely choices.
int Choice(double uniform, int count) { return static_cast<int>(uniform * count); }

// Eight round clusters on a circle.
void Gaussians(std::span<const double> u, std::span<double> point) {
  const double angle = 2.0 * kPi * Choice(u[0], 8) / 8.0;
  const auto noise = NormalPair(u[1], u[2]);
  point[0] = 2.0 * std::cos(angle) + 0.2 * noise[0];
  point[1] = 2.0 * std::sin(angle) + 0.2 * noise[1];
}

// Two interleaved half circles.
void Moons(std::span<const double> u, std::span<double> point) {
  const double angle = kPi * u[1];
  const auto noise = NormalPair(u[2], u[3]);
  const bool upper = u[0] < 0.5;
  const double x = upper ? std::cos(angle) - 0.5 : 0.5 - std::cos(angle);
  const double y = upper ? std::sin(angle) - 0.25 : 0.25 - std::sin(angle);
  point[0] = 1.5 * (x + 0.08 * noise[0]);
  point[1] = 1.5 * (y + 0.08 * noise[1]);
}

// The eight squares of one colour of a 4 x 4 board on [-2, 2]^2.
void Checkerboard(std::span<const double> u, std::span<double> point) {
  const int square = Choice(u[0], 8);
  const int row = square / 2;
  const int column = 2 * (square % 2) + row % 2;
  point[0] = column - 2.0 + u[1];
  point[1] = row - 2.0 + u[2];
}

// Five blades: clusters stretched along the radius and turned by an angle that grows with it.
void Pinwheel(std::span<const double> u, std::span<double> point) {
  const auto noise = NormalPair(u[1], u[2]);
  const double along = 1.0 + 0.3 * noise[0];
  const double across = 0.1 * noise[1];
  const double angle = 2.0 * kPi * Choice(u[0], 5) / 5.0 + 0.25 * std::exp(along);
  point[0] = 2.0 * (along * std::cos(angle) - across * std::sin(angle));
  point[1] = 2.0 * (along * std::sin(angle) + across * std::cos(angle));
}

// Three concentric rings, equally dense along their length.
void Rings(std::span<const double> u, std::span<double> point) {
  constexpr std::array<double, 3> kRadii = {0.8, 1.6, 2.4};
  const double angle = 2.0 * kPi * u[1];
  const int ring = u[0] < 1.0 / 6.0 ? 0 : u[0] < 0.5 ? 1 : 2;
  const double radius = kRadii[ring] + 0.12 * NormalPair(u[2], u[3])[0];
  point[0] = radius * std::cos(angle);
  point[1] = radius * std::sin(angle);
}

// Two concentric circles, equally dense along their length.
void Circles(std::span<const double> u, std::span<double> point) {
  const double angle = 2.0 * kPi * u[1];
  const double radius = (u[0] < 1.0 / 3.0 ? 1.0 : 2.0) + 0.1 * NormalPair(u[2], u[3])[0];
  point[0] = radius * std::cos(angle);
  point[1] = radius * std::sin(angle);
}

// The simulator "two moons" of likelihood-free inference (Greenberg, Nonnenmacher and Macke 2019,
// "Automatic Posterior Transformation", appendix A.5.2). The point is the parameter, uniform on
// [-1, 1]^2, the condition what the simulator makes of it: a point of a half moon, shifted by the
// parameter. What led to an observation are two crescents, on either side of the line x + y = 0.
void TwoMoons(std::span<const double> u, std::span<double> row) {
  row[0] = 2.0 * u[0] - 1.0;
  row[1] = 2.0 * u[1] - 1.0;
  const double angle = kPi * (u[2] - 0.5);
  const double radius = 0.1 + 0.01 * NormalPair(u[3], u[4])[0];
  row[2] = radius * std::cos(angle) + 0.25 - std::abs(row[0] + row[1]) / std::numbers::sqrt2;
  row[3] = radius * std::sin(angle) + (row[1] - row[0]) / std::numbers::sqrt2;
}

struct NamedDensity {
  std::string_view name;
  void (*draw_point)(std::span<const double>, std::span<double>);
  int64_t condition_features = 0;
};

constexpr std::array<NamedDensity, 7> kDensities = {{
    {.name = "checkerboard", .draw_point = Checkerboard},
    {.name = "circles", .draw_point = Circles},
    {.name = "gaussians", .draw_point = Gaussians},
    {.name = "moons", .draw_point = Moons},
    {.name = "pinwheel", .draw_point = Pinwheel},
    {.name = "rings", .draw_point = Rings},
    {.name = "two_moons", .draw_point = TwoMoons, .condition_features = 2},
}};

}  // namespace

absl::StatusOr<Density> Density::Named(std::string_view name) {
  for (const NamedDensity& density : kDensities) {
    if (density.name == name) return Density(density.draw_point, density.condition_features);
  }
  return absl::InvalidArgumentError(absl::StrCat("no density '", std::string(name), "'; there are ",
                                                 absl::StrJoin(Names(), ", ")));
}

std::vector<std::string> Density::Names() {
  std::vector<std::string> names;
  for (const NamedDensity& density : kDensities) names.emplace_back(density.name);
  return names;
}

std::vector<float> Density::Draw(uint64_t seed, uint64_t first_row, int64_t rows) const {
  std::vector<float> all;
  std::vector<double> row(2 + condition_features_);
  for (int64_t i = 0; i < rows; ++i) {
    const auto words = RowWords(seed, first_row + i);
    std::array<double, 8> uniforms;
    for (size_t k = 0; k < words.size(); ++k) uniforms[k] = UnitUniform(words[k]);
    draw_point_(uniforms, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

}  // namespace hyperserve
