// What a device keeps of each model with its correction that an engine has been asked for; of a
// learned solver, for each of its tables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/model/net/model.h"

namespace hyperserve {

// Thread-safe. Makes a thing once for a model with its correction, outside the lock, and keeps it
// (or the reason why there is none) until, after either has gone, others are made.
template <class Packed>
class PackedModels {
 public:
  using Found = absl::StatusOr<std::shared_ptr<const Packed>>;

  // `evaluations`: of a table; 0: none. make() -> Found; what it throws leaves this call.
  template <class Make>
  Found Find(const BatchSpec& spec, int64_t evaluations, const Make& make) {
    const Key key(spec.model.get(), spec.correction.get(), evaluations);
    const auto is_of = [&](const Entry& entry) {
      return entry.model.lock() == spec.model && entry.correction.lock() == spec.correction;
    };
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(key);
      if (found != entries_.end() && is_of(found->second)) return found->second.packed;
    }
    Entry made{.model = spec.model, .correction = spec.correction, .packed = make()};
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& one) {
      const Entry& entry = one.second;
      const bool had_correction = std::get<const Hypersolver*>(one.first) != nullptr;
      return entry.model.expired() || (had_correction && entry.correction.expired());
    });
    return entries_.try_emplace(key, std::move(made)).first->second.packed;
  }

 private:
  using Key = std::tuple<const Model*, const Hypersolver*, int64_t>;
  struct Entry {
    std::weak_ptr<const Model> model;
    std::weak_ptr<const Hypersolver> correction;
    Found packed;
  };

  std::mutex mutex_;
  // By address; guarded by mutex_. An entry whose model has gone says nothing of another there.
  std::map<Key, Entry> entries_;
};

}  // namespace hyperserve
