// A plan on a model of a repository, for the programs that measure solves.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"

namespace hyperserve {

inline std::string FromEnvironment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? std::move(otherwise) : value;
}

struct Case {
  std::string name;
  BatchSpec spec;
  StepPlan plan;
  int64_t rows = 0;
};

// A plan on a model of the repository: classifiers from an image, flows from noise.
inline absl::StatusOr<Case> CaseOf(const std::string& folder,
                                   const std::shared_ptr<const Model>& model,
                                   std::string_view plan_text) {
  HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(plan_text));
  const bool flow = model->spec().kind == ModelKind::kFlow;
  Case of{.spec = {.model = model,
                   .tier = plan.tier,
                   .entry = flow ? Entry::kNoise : Entry::kInput,
                   .direction = flow ? Direction::kNoiseToData : Direction::kForward,
                   .want_outputs = !flow}};
  if (const AdaptivePlan* adaptive = plan.adaptive()) of.plan = *adaptive;
  if (const FixedPlan* fixed = plan.fixed()) of.plan = *fixed;
  if (plan.hypersolved()) {
    const std::string generations = HypersolverFolder(folder, plan.fixed()->method);
    HS_ASSIGN_OR_RETURN(const std::optional<int64_t> active, ReadActive(generations));
    if (!active.has_value()) {
      return absl::NotFoundError(absl::StrCat(generations, " has no ACTIVE"));
    }
    HS_ASSIGN_OR_RETURN(of.spec.correction,
                        Hypersolver::Load(absl::StrCat(generations, "/", *active), *model));
  }
  return of;
}

// Images for a classifier, of bytes that differ; empty for a flow, which starts from noise.
inline HostTensor ImagesOf(const Case& of) {
  HostTensor images;
  if (of.spec.entry != Entry::kInput) return images;
  Shape shape = of.spec.model->spec().input.shape;
  shape.insert(shape.begin(), of.rows);
  images = HostTensor::Zeros(Dtype::kU8, shape);
  for (size_t i = 0; i < images.bytes.size(); ++i) images.bytes[i] = std::byte(i * 37 % 256);
  return images;
}

}  // namespace hyperserve
