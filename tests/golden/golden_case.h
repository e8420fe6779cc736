// The golden cases of this folder as our own models: trained weights, and float64 answers of
// programs that share no code with this project (README.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/plan/plan.h"

namespace hyperserve {

struct GoldenCase {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Hypersolver> correction;  // null where there is none
  SafetensorsFile answers;
};

// $HYPERSERVE_GOLDEN, or this folder as it was when the tests were built.
std::string GoldenFolder();

// $HYPERSERVE_EXTERNAL, or shared/external beside the project as it was when the tests were built:
// models that nobody here made, which are not to be copied into the project.
std::string ExternalFolder();

// "vision_fashion", "cnf_pinwheel", "cnf_rings". kNotFound where the folder lacks it.
absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& name);

// "gaussian_to_moons", "eight_gaussians_to_moons" of torchcfm/; without a correction. kNotFound
// where the folder lacks it.
absl::StatusOr<GoldenCase> LoadExternalCase(const std::string& name);

// A tensor of the answers that names a plan: "logits_hyper_euler_4".
struct GoldenAnswer {
  std::string tensor;
  FixedPlan plan;
};
// The answers whose names begin with `prefix` and end with a plan.
std::vector<GoldenAnswer> FixedAnswers(const GoldenCase& golden, const std::string& prefix);

// The largest difference, absolute and relative to the largest absolute answer. Both are infinite
// where the shapes differ or a number is not finite.
struct Difference {
  double absolute = 0;
  double relative = 0;
};
Difference Compare(const HostTensor& ours, const TensorView& answer);

}  // namespace hyperserve
