// The models of a repository with their shelves, and the pictures of them that everybody else sees.
// Changed by the registry's thread alone; List and Pin are for all threads.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/repository/generation_files.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"
#include "server/registry/shelf.h"

namespace hyperserve {

class Catalog {
 public:
  // Options and services outlive it.
  Catalog(const RegistryOptions* options, const Shelf::Services* services,
          std::function<void(const RegistryEvent&)> on_event);

  std::vector<std::shared_ptr<const ServedModel>> List() const;
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(std::string_view model) const;

  // On the registry's thread. LoadAll once, first, failing as Open does; the others as Registry
  // promises.
  absl::Status LoadAll();
  void LookAtFolders();
  absl::StatusOr<PublishOutcome> Publish(const std::string& model, const std::string& method,
                                         const GenerationFiles& files,
                                         std::optional<int64_t> parent_generation);
  absl::StatusOr<PublishOutcome> Rollback(const std::string& model, const std::string& method,
                                          int64_t generation);
  // Destroys what was swapped out and is no longer pinned; true where something still is.
  bool DropUnpinned();

 private:
  using Event = RegistryEvent;

  // What was swapped out and may still be pinned. Destroying a model or a correction takes time, so
  // the last pin must not do it on a solver's thread: a reference stays here until nobody else has
  // one. No weak pointers may be made of what is added, and nothing is added twice.
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

  struct LoadedModel {
    std::string folder;
    std::shared_ptr<const Model> model;
    std::deque<Shelf> shelves;
  };

  absl::Status LoadModel(const std::string& folder);
  // Starts the methods whose folders are new and tries the generations that are.
  void LookAtFolder(const std::string& name, LoadedModel& loaded, const char* source);
  absl::StatusOr<LoadedModel*> FindModel(const std::string& name);
  Shelf* FindShelf(LoadedModel& loaded, const MethodChoice& method);
  Shelf& AddShelf(LoadedModel& loaded, const MethodChoice& method);
  // Shows everybody what the shelves hold now: one pointer exchange. What is no longer shown is
  // retired.
  void ShowStates(const std::string& name, const LoadedModel& loaded);
  void RetireUnshown(const ServedModel& before, const ServedModel& now);
  void Report(const Event& event) const;
  void ReportTried(const std::string& model, const MethodChoice& method, int64_t generation,
                   const char* source, const absl::StatusOr<PublishOutcome>& outcome) const;

  // Fixed after construction.
  const RegistryOptions& options_;
  const Shelf::Services& services_;
  const std::function<void(const Event&)> on_event_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ServedModel>, std::less<>> served_;

  // Touched by the registry's thread only.
  std::map<std::string, LoadedModel> loaded_;
  Retired retired_;
};

}  // namespace hyperserve
