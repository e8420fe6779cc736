// Models whose field is code, for tests: a package of AOTInductor around field_code.cc, so that no
// test needs PyTorch and a compiler.
#pragma once

#include <memory>
#include <string>

#include "core/model/net/model.h"
#include "core/model/spec/spec.h"

namespace hyperserve::fixture {

// The bytes of a field.pt2 for the CPU, whose field is f(s, z) = -(1 + s) z, or with a condition of
// one number c, -(1 + s) z + c. Over the span [0, 1] z decays to z exp(-3/2). `isa` is what its
// metadata say of the processor.
std::string FieldPackageBytes(const std::string& isa = "");

// model.json of a flow from noise to data in two dimensions, span [0, 1], with that field.
std::string CodedFlowJson(int condition_features = 0);

// That flow. Aborts if the loader refuses it.
std::shared_ptr<const Model> CodedFlow(int condition_features = 0,
                                       FieldCode code = FieldCode::kRun);

// Writes <repository>/<name> with its three files.
void WriteCodedFlow(const std::string& repository, const std::string& name);

}  // namespace hyperserve::fixture
