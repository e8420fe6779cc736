// A generation as it lies on disk, read and checked against its model: everything that the gate
// asks before it measures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "server/registry/served_model.h"

namespace hyperserve {

struct Candidate {
  std::shared_ptr<const Generation> generation;
  HostTensor probe;  // model inputs [rows, ...]; flows: states
};

// Manifest, spec, tensors, digests, finite numbers, direction, range of eps, calibration, probe.
// The message names the file.
absl::StatusOr<Candidate> LoadCandidate(const std::string& generation_folder, int64_t number,
                                        const MethodChoice& method, const Model& model);

// kFailedPrecondition where the spec is of another method than the one it is published as.
absl::Status CheckMethod(const HypersolverSpec& spec, const MethodChoice& method);

// The calibration at `path`, which must be of this base. kNotFound where there is none.
absl::StatusOr<Calibration> LoadCalibration(const std::string& path, const Model& model);

}  // namespace hyperserve
