// All generations of the correction of one model for one method: which is served, the verdict on
// each, which is tried next. Belongs to the registry's thread; other threads see its state through
// the catalog. Internal to this folder.
//
// A file or a generation that cannot be used never stops the daemon: state().problem says why.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/net/model.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/candidate.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// A hypersolver folder at one moment. The three decisions below are pure functions of it.
struct ShelfSnapshot {
  std::vector<int64_t> generations;     // folders that are there, ascending
  std::map<int64_t, Verdict> verdicts;  // by generation
  std::optional<int64_t> active;        // the number in ACTIVE; nullopt: there is no such file
};

// The generations to try at start, in this order, until one is served. Where ACTIVE names one it is
// the only one, so that a restart undoes no rollback. Else all that were not refused, the highest
// first.
std::vector<int64_t> StartOrder(const ShelfSnapshot& snapshot);
// The lowest generation without a verdict; nullopt: all have one.
std::optional<int64_t> NextUntried(const ShelfSnapshot& snapshot);
// The candidates for rollback after a restart: those below ACTIVE that passed, the highest first.
std::vector<int64_t> PreviousOrder(const ShelfSnapshot& snapshot);

class Shelf {
 public:
  // What a shelf needs of the registry.
  struct Services {
    GateMeasure measure;
    std::function<absl::Status(const WarmUpSubject&)> warm;  // may be empty
    // OK while the work is still wanted, else the answer for its caller. Asked between steps.
    std::function<absl::Status()> go_on;
    // Did go_on end it because something more urgent waits? Then it is tried again.
    std::function<bool()> gave_way;
    double margin = 0;       // the margin of DecideGate
    bool read_only = false;  // verdicts and ACTIVE are kept in memory only
  };

  // `services` must outlive the shelf. `folder` is <model>/hypersolvers/<method>; it need not
  // exist.
  Shelf(const Services* services, std::shared_ptr<const Model> model, std::string folder,
        MethodChoice method);

  // Serves the first usable generation of StartOrder. If there is none, state().problem says why.
  // Call it once, first.
  void Start();

  // The next generation in the folder that was not tried; nullopt: there is none.
  std::optional<int64_t> NextToTry() const;
  // Runs the gate and swaps if the generation passes. kFailedPrecondition: it is refused; its
  // verdict is written. Where go_on ends it, it fails as go_on says and the generation stays
  // untried.
  absl::StatusOr<PublishOutcome> Try(int64_t number);
  // Writes the files as a new generation and tries it. Fails as Registry::Publish does. Sets
  // *number once the generation has one. If it is refused or given up, its folder is removed and
  // its verdict stays, so that the number is not used again.
  absl::StatusOr<PublishOutcome> Publish(const GenerationFiles& files,
                                         std::optional<int64_t> parent_generation, int64_t* number);
  // Serves generation `number` again; 0: the previous one. Fails as Registry::Rollback does.
  absl::StatusOr<PublishOutcome> Rollback(int64_t number);

  CorrectionState state() const;

 private:
  int64_t ActiveNumber() const;
  // The highest number that this shelf saw, even if the folder was removed since.
  int64_t HighestKnown() const;
  void RemoveIfRefused(int64_t number) const;
  // Removes a generation whose caller gave up, so that it is not found and served later.
  void Withdraw(int64_t number, const absl::Status& why);
  std::string GenerationFolder(int64_t number) const;
  ShelfSnapshot Snapshot() const;
  absl::Status ReadState();
  absl::Status ServeFromStart(int64_t number);
  absl::Status Warm(const Generation& generation) const;
  // All checks of a candidate, the gate included; fills outcome->gate.
  absl::StatusOr<Candidate> Examine(int64_t number, PublishOutcome* outcome);
  absl::Status Remember(int64_t number, const absl::Status& examined,
                        const std::vector<GateMeasurement>& gate);
  // Writes ACTIVE, then swaps.
  absl::Status Serve(Candidate candidate);

  const Services* const services_;
  const std::shared_ptr<const Model> model_;
  const std::string folder_;
  const MethodChoice method_;

  std::map<int64_t, Verdict>
      verdicts_;                 // as VERDICTS.json; ahead of it where it could not be written
  std::set<int64_t> set_aside_;  // failed by our own fault: tried again after a restart only
  std::optional<int64_t> active_on_disk_;
  std::optional<Candidate> active_;
  std::optional<Candidate> previous_;
  std::string problem_;
  bool unreadable_ = false;  // true: ACTIVE or VERDICTS.json cannot be read, so nothing is tried
};

}  // namespace hyperserve
