#include "server/rpc/model_events.h"

#include <utility>

namespace hyperserve {

int64_t ModelEvents::Join(Listener listener) {
  const std::lock_guard lock(mutex_);
  if (ended_) listener(nullptr);
  listeners_.emplace(next_, std::move(listener));
  return next_++;
}

void ModelEvents::Leave(int64_t number) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(number);
}

void ModelEvents::Tell(const RegistryEvent& event) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, listener] : listeners_) listener(&event);
}

void ModelEvents::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (const auto& [number, listener] : listeners_) listener(nullptr);
}

}  // namespace hyperserve
