// Models and corrections of any spec with seeded random weights, for tests that need a net but no
// known answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"

namespace hyperserve::fixture {

// The bytes of a weights.safetensors with these tensors: normals divided by sqrt(fan-in), variances
// and scales near one.
std::string RandomWeights(const std::map<std::string, Shape>& tensors, uint64_t seed);

struct GenerationBytes {
  std::string hypersolver_json, weights;
};

// Aborts if the loader refuses the spec.
std::shared_ptr<const Model> RandomModel(const ModelSpec& spec, uint64_t seed);
// The spec's base_digest is filled in.
std::shared_ptr<const Hypersolver> RandomHypersolver(HypersolverSpec spec, const Model& model,
                                                     uint64_t seed);

// Nets that the tests share. A flow in two dimensions, data to noise, whose field reads the depth.
ModelSpec FlowSpec();
HypersolverSpec FlowCorrectionSpec();
// The same with a condition of three numbers, which field and correction read.
ModelSpec ConditionalFlowSpec();
// The same with a condition that stands for none.
ModelSpec GuidedFlowSpec();
HypersolverSpec ConditionalCorrectionSpec();
// A classifier of images [1, 12, 12], sizes at which padding matters; state [8, 12, 12], 5 outputs.
ModelSpec ImageSpec();
HypersolverSpec ImageCorrectionSpec();
// A learned solver with tables of 1 and 3 evaluations, the first one with a readout.
HypersolverSpec TablesSpec(const Model& model, Direction direction, Coefficients kind);
// The same for flows, with a table of 0 evaluations too.
HypersolverSpec FlowTablesSpec(const Model& model, Coefficients kind);
// A learned solver that computes what these classical plans do; one plan for each number of
// evaluations. The distance of a row is that from one step of euler. The spec's base_digest,
// direction and tables' numbers are filled in.
GenerationBytes LearnedFrom(const std::vector<FixedPlan>& plans, Coefficients kind,
                            const Model& model, Direction direction);

}  // namespace hyperserve::fixture
