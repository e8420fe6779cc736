#include "server/registry/gate_steps.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

constexpr int kEveryStepUpTo = 32;
constexpr double kLadderFactor = 1.25;
constexpr int kMeasuredStepsMax = 1000;  // bounds the time that the gate takes
// Two ranges that differ by less are one range: they are typed in decimals.
constexpr double kEpsSlack = 1e-3;

bool Serves(const GateInput& input, int steps) {
  const HypersolverSpec& spec = input.candidate->spec();
  const FixedPlan plan = {.method = spec.method, .steps = steps, .hypersolved = true};
  return CheckApplies(*input.candidate, plan, spec.direction, input.model->spec().span).ok();
}

// What the candidate lacks of the active generation, in words; empty: nothing.
std::string Missing(const HypersolverSpec& candidate, const HypersolverSpec& active) {
  if (candidate.direction != active.direction) {
    return absl::StrCat("the active generation runs ", std::string(DirectionName(active.direction)),
                        ", this one ", std::string(DirectionName(candidate.direction)));
  }
  for (const int steps : active.steps) {
    if (Claims(candidate, steps)) continue;
    return active.learned()
               ? absl::StrCat("learned:", steps,
                              " is served by the active generation, not by this one")
               : absl::StrCat("the active generation claims K = ", steps, ", this one does not");
  }
  const bool narrower = candidate.eps[0] > active.eps[0] * (1 + kEpsSlack) ||
                        candidate.eps[1] < active.eps[1] * (1 - kEpsSlack);
  if (active.learned() || !narrower) return "";
  return absl::StrCat("the active generation serves eps in [", active.eps[0], ", ", active.eps[1],
                      "], this one only [", candidate.eps[0], ", ", candidate.eps[1], "]");
}

}  // namespace

bool Claims(const HypersolverSpec& spec, int steps) {
  return std::find(spec.steps.begin(), spec.steps.end(), steps) != spec.steps.end();
}

std::vector<int> GateSteps(const GateInput& input) {
  const HypersolverSpec& spec = input.candidate->spec();
  if (spec.learned()) return {spec.steps.begin(), spec.steps.end()};
  std::vector<int> steps;
  int last = 0;
  int next = 1;
  for (int k = 1; k <= kMeasuredStepsMax; ++k) {
    if (!Serves(input, k)) continue;
    last = k;
    if (k < next && !Claims(spec, k)) continue;
    steps.push_back(k);
    if (k >= next)
      next = k < kEveryStepUpTo ? k + 1 : static_cast<int>(std::ceil(k * kLadderFactor));
  }
  if (last > 0 && steps.back() != last) steps.push_back(last);
  return steps;
}

absl::Status CheckKeeps(const GateInput& input) {
  if (input.active == nullptr || input.may_narrow) return absl::OkStatus();
  const std::string missing = Missing(input.candidate->spec(), input.active->spec());
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      missing, "; clients may ask for it by name: publish with allow_narrower to take it away"));
}

}  // namespace hyperserve
