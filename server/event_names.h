// What the log and the metrics call an event of the registry.
#pragma once

#include "server/registry/registry.h"

namespace hyperserve {

// Texts of static storage, from bounded sets: they serve as labels of metrics.
struct EventNames {
  const char* log;
  const char* result;     // in metrics
  bool of_model = false;  // else of a generation
  bool bad = false;       // is logged as a warning
};

// Pure; any thread. Every kind has names: the compiler warns of one that is left out.
inline EventNames NamesOf(Registry::Event::Kind kind) {
  switch (kind) {
    case Registry::Event::Kind::kModelLoaded:
      return {.log = "model_loaded", .result = "loaded", .of_model = true};
    case Registry::Event::Kind::kModelRefused:
      return {.log = "model_refused", .result = "refused", .of_model = true, .bad = true};
    case Registry::Event::Kind::kModelUnloaded:
      return {.log = "model_unloaded", .result = "unloaded", .of_model = true};
    case Registry::Event::Kind::kPublished:
      return {.log = "published", .result = "published"};
    case Registry::Event::Kind::kRefused:
      return {.log = "refused", .result = "refused", .bad = true};
    case Registry::Event::Kind::kRolledBack:
      break;
  }
  return {.log = "rolled_back", .result = "rolled_back"};
}

}  // namespace hyperserve
