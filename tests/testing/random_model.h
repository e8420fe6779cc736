// Models and corrections of any spec with seeded random weights, for tests that need a shape of net
// rather than a known answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"

namespace hyperserve::fixture {

// weights.safetensors of the layers, under this prefix: normals over sqrt(fan-in); variances and
// scales around one.
std::string RandomWeights(const std::map<std::string, Shape>& tensors, uint64_t seed);

// Aborts where the spec is one that the loader refuses.
std::shared_ptr<const Model> RandomModel(const ModelSpec& spec, uint64_t seed);
// The spec's base_digest is filled in.
std::shared_ptr<const Hypersolver> RandomHypersolver(HypersolverSpec spec, const Model& model,
                                                     uint64_t seed);

// Some nets that the tests share. Flow in two dimensions, data to noise, depth in its field.
ModelSpec FlowSpec();
HypersolverSpec FlowCorrectionSpec();
// Images [1, 12, 12] with padding-sensitive sizes, state [8, 12, 12], 5 outputs.
ModelSpec ImageSpec();
HypersolverSpec ImageCorrectionSpec();

}  // namespace hyperserve::fixture
