// Where the steps of a fixed plan end, as shares of its span. The spelling stands behind '@' in a
// plan: euler:4@cosine, heun:8@sway(-1), euler:3@[0,0.1,0.3,1]. All functions are pure and may be
// called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hyperserve {

// With u = k/K, step k of K ends at the share
//   uniform       u
//   cosine        (1 - cos(pi u)) / 2: short steps at both ends
//   sway          u + c (cos(pi u / 2) - 1 + u): short steps at the start where c < 0, at the end
//                 where c > 0 (Chen et al. 2024, "F5-TTS", section 3.2)
//   logit_normal  1 / (1 + e^-q), q the quantile of a standard normal at u: long steps at both ends
//                 (the times at which Esser et al. 2024, "Scaling Rectified Flow Transformers",
//                 section 3.1, train)
//   listed        shares[k]
struct StepGrid {
  // In the order of the table of names, beside kListed, which has none.
  enum class Kind { kUniform, kCosine, kSway, kLogitNormal, kListed };
  Kind kind = Kind::kUniform;
  double sway = 0.0;           // c; 0 where the kind is another
  std::vector<double> shares;  // K + 1 numbers from 0 to 1; empty where the kind is another

  bool uniform() const { return kind == Kind::kUniform; }
  bool operator==(const StepGrid&) const = default;
};

// The share of the span before step `step`; 0 for step 0 and 1 for step K. Strictly increasing.
// Precondition: ValidateStepGrid(grid, steps).ok() and 0 <= step <= steps.
double ShareAt(const StepGrid& grid, int64_t step, int64_t steps);

// The shortest and the longest step, as shares of the span. The same precondition.
struct StepShares {
  double shortest = 1.0, longest = 1.0;
};
// Looks at each of the steps, unless they are equal.
StepShares ExtremeSteps(const StepGrid& grid, int64_t steps);

// kInvalidArgument: an unknown name, c outside [-1, 1.75], beyond which steps would run backwards,
// a list of other than K + 1 shares or over its limit, or shares that do not rise from 0 to 1 by at
// least 1e-6 each.
absl::Status ValidateStepGrid(const StepGrid& grid, int64_t steps);

// The text behind '@'; the two are inverses. ParseStepGrid fails for another spelling and leaves
// the rest to ValidateStepGrid.
absl::StatusOr<StepGrid> ParseStepGrid(std::string_view text);
std::string PrintStepGrid(const StepGrid& grid);

}  // namespace hyperserve
