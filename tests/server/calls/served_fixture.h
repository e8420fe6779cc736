// Tiny models as a registry would serve them, made without one, and the limits of the options page.
#pragma once

#include <memory>

#include "server/batching/batcher_options.h"
#include "server/calls/limits.h"
#include "server/options.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// Both have corrections of generation 7 (active) and 5 (previous): euler forward for the
// classifier, heun from noise to data for the flow; both claim K = 1, 2, 4.
std::shared_ptr<ServedModel> ServedTinyClassifier();
std::shared_ptr<ServedModel> ServedTinyFlow();
// The tiny classifier's layers as a regressor, and a trajectory of its field that is saved at 0.25
// and 1. Neither has a correction.
std::shared_ptr<ServedModel> ServedTinyRegressor();
std::shared_ptr<ServedModel> ServedTinyTrajectory();

// The limits of a daemon with these options on a machine of two cores.
inline CallLimits LimitsWith(const Options& options = {}) {
  return LimitsOf(InForce(options, {.cores = 2}));
}

inline BatcherOptions BatcherOptionsWith(const Options& options = {}) {
  return BatcherOptionsOf(InForce(options, {.cores = 2}));
}

}  // namespace hyperserve
