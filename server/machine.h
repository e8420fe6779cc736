// The facts of this machine that the defaults of options depend on. Reads files of the system.
// Called once, by the daemon's Start.
#pragma once

#include <vector>

#include "core/engine/devices.h"
#include "server/options.h"

namespace hyperserve {

// Raises the soft limit of descriptors to the hard one, and tells what the machine has. Never
// fails: what cannot be read keeps the default of Machine.
Machine MachineWith(const std::vector<DeviceInfo>& devices);

}  // namespace hyperserve
