#include "training/optimise/fit_state.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hyperserve {
namespace {

constexpr int kLimited = 5;  // the first ones of the numbers: counts and seconds

}  // namespace

at::Tensor TensorOf(const FitNumbers& n) {
  return at::tensor({double(n.iterations), double(n.steps_back), double(n.best_iteration),
                     double(n.gain_iteration), n.seconds, n.best_error, n.gain_error},
                    at::kDouble);
}

FitNumbers FitNumbersOf(const at::Tensor& tensor) {
  const auto number = [&](int i) { return tensor[i].item<double>(); };
  return {.iterations = static_cast<int>(number(0)),
          .steps_back = static_cast<int>(number(1)),
          .best_iteration = static_cast<int>(number(2)),
          .gain_iteration = static_cast<int>(number(3)),
          .seconds = number(4),
          .best_error = number(5),
          .gain_error = number(6)};
}

absl::Status CheckState(const TensorMap& state, const TensorMap& wanted, const FitNumbers& most) {
  const auto text = [](const at::Tensor& tensor) {
    return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "] of ",
                        c10::toString(tensor.scalar_type()));
  };
  const auto refuse = [](const std::string& words) {
    return absl::FailedPreconditionError("--resume: the checkpoint does not fit this run: " +
                                         words);
  };
  for (const auto& [name, tensor] : wanted) {
    const auto found = state.find(name);
    if (found == state.end()) return refuse(name + " is missing");
    const at::Tensor& there = found->second;
    const bool grown =
        name == fit_state::kCurve && there.dim() == 2 && there.size(1) == tensor.size(1);
    if (there.scalar_type() == tensor.scalar_type() && (grown || there.sizes() == tensor.sizes())) {
      continue;
    }
    return refuse(absl::StrCat(name, " is ", text(there), ", wanted is ", text(tensor)));
  }
  if (state.size() != wanted.size()) {
    return refuse(absl::StrCat("it holds ", state.size(), " tensors, wanted are ", wanted.size()));
  }
  const at::Tensor &numbers = state.at(fit_state::kNumbers), limits = TensorOf(most);
  for (int i = 0; i < kLimited; ++i) {
    const auto number = numbers[i].item<double>(), limit = limits[i].item<double>();
    if (number >= 0 && number <= limit) continue;
    return refuse(absl::StrCat(fit_state::kNumbers, "[", i, "] is ", number,
                               ", wanted is a number from 0 to ", limit));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
