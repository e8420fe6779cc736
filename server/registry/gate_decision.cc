#include "server/registry/gate_decision.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hyperserve {

Verdict DecideGate(const std::vector<GateMeasurement>& measurements, double margin) {
  if (measurements.empty()) return {.passed = false, .reason = "no number of steps was measured"};
  Verdict verdict = {.passed = true};
  std::vector<std::string> lines;
  for (const GateMeasurement& at : measurements) {
    const bool learned = !at.base_plan.empty();
    std::string line = absl::StrFormat("%s = %d: error %.3g, %s %.3g", learned ? "n" : "K",
                                       at.steps, at.candidate_error,
                                       learned ? at.base_plan : "classical method", at.base_error);
    if (at.active_error.has_value())
      absl::StrAppendFormat(&line, ", active %.3g", *at.active_error);
    const auto worse_than = [&](double error) {
      return at.candidate_error > error * (1.0 + margin) + kGateReferenceTolerance;
    };
    std::string fault;
    if (!std::isfinite(at.candidate_error)) {
      fault = "not finite";
    } else if (!at.claimed && !at.active_error.has_value()) {
      if (worse_than(at.base_error)) {
        fault = absl::StrFormat(
            "served without a claim, and more than %.3g %% worse than the classical method: narrow "
            "the range of eps",
            100 * margin);
      }
    } else if (learned && at.candidate_error > at.base_error + kGateReferenceTolerance) {
      fault = absl::StrCat("more than ", at.base_plan, ", which costs no more");
    } else if (at.claimed && !learned && at.candidate_error >= at.base_error) {
      fault = "does not beat the classical method";
    } else if (at.active_error.has_value() && worse_than(*at.active_error)) {
      fault = absl::StrFormat("more than %.3g %% worse than the active generation", 100 * margin);
    }
    if (!fault.empty()) absl::StrAppend(&line, " (", fault, ")");
    verdict.passed = verdict.passed && fault.empty();
    lines.push_back(std::move(line));
  }
  verdict.reason = absl::StrJoin(lines, "; ");
  return verdict;
}

}  // namespace hyperserve
