// hyperserve-train publish: a generation to a running daemon, or into a repository.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace hyperserve {

struct PublishOptions {
  std::string generation;  // folder
  std::string model;
  std::string admin_address;  // a running daemon's, or ...
  std::string to_folder;      // ... a repository
  int64_t parent = -1;        // generation that this one follows; -1: whatever is active
  absl::Duration deadline = absl::Seconds(60);
};

// Prints what the gate said. A refusal is the daemon's status and words.
absl::Status Publish(const PublishOptions& options);

}  // namespace hyperserve
