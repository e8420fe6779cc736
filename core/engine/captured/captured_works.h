// The captured works of one device: of each spec and size one for each lane. Entries do not keep
// models alive: those whose model or correction is gone leave when the next work is kept.
// Thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/model/net/model.h"

namespace hyperserve {

// Work has shared `places`, whose All() returns the tensors between which it works.
template <class Work>
class CapturedWorks {
 public:
  struct Captured {
    absl::Status status;                               // not OK: why there is none
    std::vector<std::shared_ptr<const Work>> by_lane;  // else
  };
  // By number of evaluations; 0 where the work is a step.
  using OfBucket = std::map<int64_t, Captured>;

  // What the work depends on beside model and correction: the spec without what does not matter.
  using Essence = BatchSpec (*)(const BatchSpec&);
  explicit CapturedWorks(Essence essence) : essence_(essence) {}

  // All that was tried for the spec in this bucket.
  OfBucket Find(const BatchSpec& spec, int64_t bucket) const {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.gone() || !IsOf(entry, spec)) continue;
      const auto found = entry.by_bucket.find(bucket);
      return found == entry.by_bucket.end() ? OfBucket() : found->second;
    }
    return {};
  }

  // Keeps what `make` captures in every lane; what goes wrong becomes its status. False where that
  // was tried before. Of two callers that try the same at once, the later one's stays.
  template <class Make>
  bool Capture(const BatchSpec& spec, int64_t bucket, int64_t evaluations, const Make& make) {
    if (Find(spec, bucket).contains(evaluations)) return false;
    Captured captured;
    captured.status = CatchExceptions("it cannot be captured", [&] {
      captured.by_lane = make();
      return absl::OkStatus();
    });
    if (!captured.status.ok()) {
      captured.status = absl::UnimplementedError(captured.status.message());
    }
    Keep(spec, bucket, evaluations, std::move(captured));
    return true;
  }

  // Those of another work in the lane where they are alike: one run at a time uses the lane.
  template <class Places>
  std::shared_ptr<Places> PlacesLike(std::shared_ptr<Places> made, size_t lane) const {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      for (const auto& [bucket, works] : entry.by_bucket) {
        for (const auto& [evaluations, captured] : works) {
          if (!captured.status.ok()) continue;
          const std::shared_ptr<Places>& places = captured.by_lane[lane]->places;
          if (std::ranges::equal(places->All(), made->All(), Alike)) return places;
        }
      }
    }
    return made;
  }

 private:
  struct Entry {
    std::weak_ptr<const Model> model;
    std::weak_ptr<const Hypersolver> correction;
    BatchSpec essence;
    std::map<int64_t, OfBucket> by_bucket = {};

    bool gone() const {
      const std::weak_ptr<const Hypersolver> none;
      const bool corrected = correction.owner_before(none) || none.owner_before(correction);
      return model.expired() || (corrected && correction.expired());
    }
  };

  void Keep(const BatchSpec& spec, int64_t bucket, int64_t evaluations, Captured captured) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const Entry& entry) { return entry.gone(); });
    auto entry = std::ranges::find_if(entries_, [&](const Entry& one) { return IsOf(one, spec); });
    if (entry == entries_.end()) {
      entry = entries_.insert(
          entry, {.model = spec.model, .correction = spec.correction, .essence = essence_(spec)});
    }
    entry->by_bucket[bucket].insert_or_assign(evaluations, std::move(captured));
  }

  bool IsOf(const Entry& entry, const BatchSpec& spec) const {
    return entry.model.lock() == spec.model && entry.correction.lock() == spec.correction &&
           entry.essence == essence_(spec);
  }

  static bool Alike(const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() == b.defined();
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
           a.strides() == b.strides();
  }

  const Essence essence_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

}  // namespace hyperserve
