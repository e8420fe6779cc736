// All generations of one (model, method): which is served, what the gate said of each, what is
// tried next. Belongs to the registry's thread; the registry shows its state to everybody else.
//
// A file or a generation that cannot be used never stops the daemon: it is said in state().problem.
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

// A hypersolver folder at one moment: what the pure decisions below look at.
struct ShelfSnapshot {
  std::vector<int64_t> generations;  // ascending
  std::map<int64_t, Verdict> verdicts;
  std::optional<int64_t> active;  // what ACTIVE says
};

// What to try at start, in this order, until one is served: ACTIVE alone where there is one, so
// that a restart undoes no rollback; else all that were not refused, the highest first.
std::vector<int64_t> StartOrder(const ShelfSnapshot& snapshot);
// The lowest generation without a verdict; nullopt: none.
std::optional<int64_t> NextUntried(const ShelfSnapshot& snapshot);
// What rollback would return to after a restart: the ones below ACTIVE that passed, highest first.
std::vector<int64_t> PreviousOrder(const ShelfSnapshot& snapshot);

class Shelf {
 public:
  // What a shelf needs of the registry; outlives it.
  struct Services {
    GateMeasure measure;
    std::function<absl::Status(const WarmUpSubject&)> warm;  // may be empty
    // OK, or why what is being done is to end, in the words of the answer. Asked between steps.
    std::function<absl::Status()> go_on;
    double margin = 0;       // as DecideGate's
    bool read_only = false;  // verdicts and ACTIVE are kept in memory alone
  };

  // `folder` is <model>/hypersolvers/<method>; it may not exist yet.
  Shelf(const Services* services, std::shared_ptr<const Model> model, std::string folder,
        MethodChoice method);

  // Serves what StartOrder finds. Where nothing that is there can be used, state().problem says
  // why.
  void Start();

  // The next generation that appeared in the folder and was not tried.
  std::optional<int64_t> NextToTry() const;
  // The gate, and the swap where it passes. Where it is to end first, the generation stays untried.
  absl::StatusOr<PublishOutcome> Try(int64_t number);
  // Writes the files as a new generation and tries it. Sets *number as soon as it has one. Of one
  // that is refused or given up only the verdict stays, which keeps its number.
  absl::StatusOr<PublishOutcome> Publish(const GenerationFiles& files,
                                         std::optional<int64_t> parent_generation, int64_t* number);
  // 0: the previous one.
  absl::StatusOr<PublishOutcome> Rollback(int64_t number);

  CorrectionState state() const;

 private:
  int64_t ActiveNumber() const;
  // Of all generations that this shelf saw, also where somebody removed their folders since.
  int64_t HighestKnown() const;
  void RemoveIfRefused(int64_t number) const;
  // What nobody waits for must not be found and served later.
  void Withdraw(int64_t number, const absl::Status& why);
  std::string GenerationFolder(int64_t number) const;
  ShelfSnapshot Snapshot() const;
  absl::Status ReadState();
  absl::Status ServeFromStart(int64_t number);
  // Everything that is asked of a candidate; fills outcome->gate.
  absl::Status Warm(const Generation& generation) const;
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
      verdicts_;                 // VERDICTS.json, and where it cannot be written, ahead of it
  std::set<int64_t> set_aside_;  // failed by our own fault: tried again after a restart
  std::optional<int64_t> active_on_disk_;
  std::optional<Candidate> active_;
  std::optional<Candidate> previous_;
  std::string problem_;
  bool unreadable_ = false;  // ACTIVE or VERDICTS.json cannot be read: nothing is tried
};

}  // namespace hyperserve
