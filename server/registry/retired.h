// What was swapped out and may still be pinned. Destroying a model or a correction takes time, so
// the last pin must not do it on a solver's thread: a reference stays here until nobody else has
// one.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace hyperserve {

// Belongs to one thread. No weak pointers may be made of what is added, and nothing is added twice.
class Retired {
 public:
  void Add(std::shared_ptr<const void> object) { objects_.push_back(std::move(object)); }

  // Destroys what nobody else refers to, and what only that referred to.
  void DropUnpinned() {
    const auto unpinned = [](const auto& object) { return object.use_count() == 1; };
    while (std::erase_if(objects_, unpinned) > 0) {
    }
  }
  bool empty() const { return objects_.empty(); }

 private:
  std::vector<std::shared_ptr<const void>> objects_;
};

}  // namespace hyperserve
