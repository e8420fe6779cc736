#include "core/plan/step_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/shortest_text.h"
#include "core/base/status.h"
#include "core/plan/plan_number.h"

namespace hyperserve {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"uniform", "cosine", "sway", "logit_normal"};
constexpr const char* kSpellings =
    "the grids are uniform, cosine, sway(c), logit_normal and shares of the span, as in "
    "euler:3@[0,0.1,0.3,1]";
// Up to 2 / (pi - 2), rounded down.
constexpr double kSwayMin = -1.0, kSwayMax = 1.75;
constexpr double kShareMin = 1e-6;       // of one listed step
constexpr size_t kListedStepsMax = 256;  // so that the text of a plan stays short

// "0", "0.0": what ParsePositive does not read.
bool IsZero(std::string_view text) {
  return text.find_first_not_of("0.") == text.npos && text.find('0') != text.npos &&
         text.find('.') == text.rfind('.');
}

// Python prints a blank after each comma of a list.
std::string_view WithoutBlanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// A number of either sign, spelled as plans spell numbers.
std::optional<double> ParseNumber(std::string_view text) {
  if (IsZero(text)) return 0.0;
  const bool negative = text.starts_with('-');
  const std::optional<double> size = ParsePositive(negative ? text.substr(1) : text);
  if (!size) return std::nullopt;
  return negative ? -*size : *size;
}

std::string PrintNumber(double value) {
  if (value == 0.0) return "0";
  return absl::StrCat(value < 0 ? "-" : "", PrintDecimal(std::abs(value)));
}

// The quantile of a standard normal at u in (0, 1), by bisection of its distribution function. At
// the lower half, where the distribution function keeps its digits; the upper half mirrors it.
double NormalQuantile(double u) {
  if (u > 0.5) return -NormalQuantile(1.0 - u);
  double low = -40.0, high = 0.0;
  while (true) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) return middle;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < u ? low : high) = middle;
  }
}

absl::Status ValidateList(const std::vector<double>& shares, int64_t steps) {
  if (shares.size() > kListedStepsMax + 1) {
    return absl::InvalidArgumentError(absl::StrCat("the grid lists ", shares.size(),
                                                   " shares; the limit is ", kListedStepsMax + 1));
  }
  if (static_cast<int64_t>(shares.size()) != steps + 1) {
    return absl::InvalidArgumentError(absl::StrCat("the grid lists ", shares.size(), " shares; ",
                                                   steps, " steps take ", steps + 1));
  }
  if (shares.front() != 0.0 || shares.back() != 1.0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the grid runs from ", ShortestText(shares.front()), " to ",
                     ShortestText(shares.back()), "; shares of the span run from 0 to 1"));
  }
  for (size_t i = 1; i < shares.size(); ++i) {
    if (shares[i] - shares[i - 1] >= kShareMin) continue;  // false for NaN
    return absl::InvalidArgumentError(absl::StrCat(
        "the grid's share ", ShortestText(shares[i]), " follows ", ShortestText(shares[i - 1]),
        "; each must be at least ", ShortestText(kShareMin), " above the one before"));
  }
  return absl::OkStatus();
}

}  // namespace

double ShareAt(const StepGrid& grid, int64_t step, int64_t steps) {
  if (step == 0) return 0.0;
  if (step == steps) return 1.0;
  const double u = static_cast<double>(step) / static_cast<double>(steps);
  switch (grid.kind) {
    case StepGrid::Kind::kUniform:
      return u;
    case StepGrid::Kind::kCosine:
      return (1.0 - std::cos(std::numbers::pi * u)) / 2;
    case StepGrid::Kind::kSway:
      return u + grid.sway * (std::cos(std::numbers::pi / 2 * u) - 1.0 + u);
    case StepGrid::Kind::kLogitNormal:
      return 1.0 / (1.0 + std::exp(-NormalQuantile(u)));
    case StepGrid::Kind::kListed:
      return grid.shares[static_cast<size_t>(step)];
  }
  return u;
}

StepShares ExtremeSteps(const StepGrid& grid, int64_t steps) {
  if (grid.uniform()) return {1.0 / static_cast<double>(steps), 1.0 / static_cast<double>(steps)};
  StepShares extremes{.shortest = 1.0, .longest = 0.0};
  double before = 0.0;
  for (int64_t step = 1; step <= steps; ++step) {
    const double share = ShareAt(grid, step, steps);
    extremes.shortest = std::min(extremes.shortest, share - before);
    extremes.longest = std::max(extremes.longest, share - before);
    before = share;
  }
  return extremes;
}

absl::Status ValidateStepGrid(const StepGrid& grid, int64_t steps) {
  if (grid.kind == StepGrid::Kind::kListed) return ValidateList(grid.shares, steps);
  if (static_cast<size_t>(grid.kind) >= kNames.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid number ", static_cast<int>(grid.kind), " is unknown; ", kSpellings));
  }
  const bool sways = grid.kind == StepGrid::Kind::kSway;
  if (!grid.shares.empty() || (!sways && grid.sway != 0.0)) {
    return absl::InvalidArgumentError("the grid has numbers of another kind of grid");
  }
  if (!sways || (grid.sway >= kSwayMin && grid.sway <= kSwayMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sway is ", ShortestText(grid.sway),
                                                 "; it must lie in [-1, 1.75], as in sway(-1)"));
}

absl::StatusOr<StepGrid> ParseStepGrid(std::string_view text) {
  const absl::Status unknown =
      absl::InvalidArgumentError(absl::StrCat("unknown grid '", Absl(text), "'; ", kSpellings));
  StepGrid grid;
  if (text.starts_with('[') && text.ends_with(']')) {
    grid.kind = StepGrid::Kind::kListed;
    std::string_view rest = text.substr(1, text.size() - 2);
    while (true) {
      const size_t comma = rest.find(',');
      const std::optional<double> share = ParseNumber(WithoutBlanks(rest.substr(0, comma)));
      if (!share || *share < 0 || grid.shares.size() > kListedStepsMax) return unknown;
      grid.shares.push_back(*share);
      if (comma == rest.npos) return grid;
      rest.remove_prefix(comma + 1);
    }
  }
  const size_t open = text.find('(');
  const auto name = std::find(kNames.begin(), kNames.end(), text.substr(0, open));
  if (name == kNames.end()) return unknown;
  grid.kind = static_cast<StepGrid::Kind>(name - kNames.begin());
  if ((grid.kind == StepGrid::Kind::kSway) != (open != text.npos)) return unknown;
  if (open == text.npos) return grid;
  if (!text.ends_with(')')) return unknown;
  const std::optional<double> sway = ParseNumber(text.substr(open + 1, text.size() - open - 2));
  if (!sway) return unknown;
  grid.sway = *sway;
  return grid;
}

std::string PrintStepGrid(const StepGrid& grid) {
  if (grid.kind == StepGrid::Kind::kListed) {
    return absl::StrCat(
        "[",
        absl::StrJoin(grid.shares, ",",
                      [](std::string* out, double share) { out->append(PrintNumber(share)); }),
        "]");
  }
  const std::string name(kNames[static_cast<size_t>(grid.kind)]);
  return grid.kind == StepGrid::Kind::kSway ? absl::StrCat(name, "(", PrintNumber(grid.sway), ")")
                                            : name;
}

}  // namespace hyperserve
