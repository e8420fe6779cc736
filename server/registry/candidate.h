// Reads a generation from its folder and checks it against its model. These are all checks of the
// gate before it measures. Reads files, changes nothing; needs no lock and keeps no state. Any
// thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "server/registry/gate_decision.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// A generation that passed all checks but the gate's measurement, with the rows to measure on.
// Copies share the generation.
struct Candidate {
  std::shared_ptr<const Generation> generation;
  Probe probe;
};

// Checks the manifest, the spec, the tensors, the digests, that all numbers are finite, the
// direction, the range of eps, the calibration and the probe. A check that fails is
// kFailedPrecondition, kInvalidArgument or kNotFound and names the file.
absl::StatusOr<Candidate> LoadCandidate(const std::string& generation_folder, int64_t number,
                                        const MethodChoice& method, const Model& model);

// The same of files that CheckGenerationFiles has passed.
absl::StatusOr<Candidate> CandidateOf(const GenerationFiles& files, int64_t number,
                                      const MethodChoice& method, const Model& model);

// kFailedPrecondition: the spec is of another method than the one it is published for.
absl::Status CheckMethod(const HypersolverSpec& spec, const MethodChoice& method);

// The calibration in the file `path`. kNotFound: there is no file. kFailedPrecondition: it was
// measured on another base. kInvalidArgument: it is no calibration.
absl::StatusOr<Calibration> LoadCalibration(const std::string& path, const Model& model);

}  // namespace hyperserve
