// The models of a repository with their shelves, and the ServedModel of each that other threads
// see. Only the registry's thread changes it; List and Pin may be called from any thread. Internal
// to this folder.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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

// Made by the registry alone, and destroyed after its thread has ended.
class Catalog {
 public:
  // `options` and `services` must outlive the catalog. `on_event` may be empty; it is called on the
  // registry's thread, with no lock held.
  Catalog(const RegistryOptions* options, const Shelf::Services* services,
          std::function<void(const RegistryEvent&)> on_event);

  // As Registry::List and Registry::Pin.
  std::vector<std::shared_ptr<const ServedModel>> List() const;
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(std::string_view model) const;

  // On the registry's thread only. LoadAll is called once, first, and fails as Registry::Open does.
  // Publish and Rollback do and fail as those of Registry; they block until they are done.
  absl::Status LoadAll();
  // Loads models that are new or changed and were not unloaded, follows other daemons, and tries
  // new generations.
  void LookAtFolders();
  // As Registry::LoadModel and UnloadModel; they block until they are done.
  absl::Status Load(const std::string& name);
  // A folder that changes meanwhile is not looked at again until Load names it.
  absl::Status Unload(const std::string& name);
  absl::StatusOr<PublishOutcome> Publish(const PublishAsk& ask);
  absl::StatusOr<PublishOutcome> Rollback(const std::string& model, const std::string& method,
                                          int64_t generation);
  // Destroys the models and corrections that were swapped out and are no longer pinned. True: some
  // are still pinned.
  bool DropUnpinned();

 private:
  using Event = RegistryEvent;

  // Objects that were swapped out and may still be pinned. To destroy a model or a correction takes
  // time, so a solver thread that releases the last pin must not do it: a reference stays here
  // until it is the only one. Nobody may make a weak pointer to an object that is added, and no
  // object is added twice.
  class Retired {
   public:
    void Add(std::shared_ptr<const void> object) { objects_.push_back(std::move(object)); }
    // Destroys each object that only this list refers to, until there is none.
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
    std::string stamp;  // of the files that it was read from
  };

  // Reads, checks and warms the model of the folder beside the one of this name, if there is one,
  // and swaps. A failure changes nothing.
  absl::Status LoadModel(const std::string& folder, const char* source);
  // The same, and on failure an event and, where an older one is served, its problem.
  absl::Status LoadOrReport(const std::string& folder, const char* source);
  void LookAtModel(const std::string& folder);
  void SetProblem(const std::string& name, std::string problem);
  // Shows `now` in place of what was shown under its name, which is retired; null: nothing any
  // more.
  void Show(const std::string& name, const std::shared_ptr<ServedModel>& now);
  // Starts the shelves of new method folders and tries new generations.
  void LookAtFolder(const std::string& name, LoadedModel& loaded, const char* source);
  // Serves what another daemon on this folder has chosen meanwhile.
  void FollowOthers(const std::string& name, LoadedModel& loaded, Shelf& shelf);
  void ReportStart(const std::string& name, const CorrectionState& state, const char* source) const;
  absl::StatusOr<LoadedModel*> FindModel(const std::string& name);
  Shelf* FindShelf(LoadedModel& loaded, const MethodChoice& method);
  Shelf& AddShelf(LoadedModel& loaded, const MethodChoice& method);
  // Makes the states of the shelves visible to other threads: one pointer exchange. Objects that
  // are no longer visible are retired.
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
  std::map<std::string, std::string> refused_;  // stamps of folders that could not be loaded
  std::set<std::string> unloaded_;              // by a call: the poll leaves them out
  Retired retired_;
};

}  // namespace hyperserve
