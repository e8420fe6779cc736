// Tiny models as a registry would serve them, made by hand.
#pragma once

#include <memory>

#include "server/registry/served_model.h"

namespace hyperserve {

// Both have corrections of generation 7 (active) and 5 (previous): euler forward for the
// classifier, heun from noise to data for the flow; both claim K = 1, 2, 4.
std::shared_ptr<ServedModel> ServedTinyClassifier();
std::shared_ptr<ServedModel> ServedTinyFlow();

}  // namespace hyperserve
