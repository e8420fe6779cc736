// What happens to models, from the registry's thread to the calls that watch. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "server/registry/registry_options.h"

namespace hyperserve {

// Keeps no event: who joins late has missed what was told before, and lists the models after it has
// joined.
class ModelEvents {
 public:
  // Called with each event, and once with null when there will be none any more. It must not block
  // or call this object.
  using Listener = std::function<void(const RegistryEvent*)>;

  // Returns a number for Leave. After End the listener is called at once, with null.
  int64_t Join(Listener listener);
  // The listener is not called any more once this has returned.
  void Leave(int64_t number);
  // Tells every listener, on the calling thread; after End nobody.
  void Tell(const RegistryEvent& event);
  // There will be no events any more. Called once, when the daemon shuts down.
  void End();

 private:
  std::mutex mutex_;
  // All below guarded by mutex_, which is held while listeners are called.
  std::map<int64_t, Listener> listeners_;
  int64_t next_ = 1;
  bool ended_ = false;
};

}  // namespace hyperserve
