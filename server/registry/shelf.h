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
#include "server/registry/shelf_snapshot.h"

namespace hyperserve {

// Every function but state() may read or write the disk and blocks on it. Start, Follow, Try,
// Publish and Rollback also load, warm or measure generations, for up to minutes.
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

  // Serves the first usable generation of StartOrder. state().problem says what could not be used,
  // and why. Call it once, first.
  void Start();

  // Reads ACTIVE and VERDICTS.json again where they changed, and serves what ACTIVE names if that
  // is another generation than before: another daemon, or a person, chose it. nullopt: nothing was
  // chosen. A failure leaves what is served; state().problem says why.
  std::optional<absl::StatusOr<PublishOutcome>> Follow();

  // The next generation in the folder that was not tried; nullopt: there is none. Leaves out what
  // somebody may still be writing.
  std::optional<int64_t> NextToTry() const;
  // Runs the gate and swaps if the generation passes. kFailedPrecondition: it is refused; its
  // verdict is written. Where go_on ends it, it fails as go_on says and the generation stays
  // untried. Where the disk fails, nothing is served and it is set aside until a restart.
  absl::StatusOr<PublishOutcome> Try(int64_t number);
  // Writes the files as a new generation and tries it. Fails as Registry::Publish does. Sets
  // *number once the generation has one. Before it stands in the folder, VERDICTS.json says that it
  // is not to be served; so neither another daemon nor a restart takes it for a candidate. Whatever
  // the failure, its folder is removed; its verdict stays, so that the number is not used again.
  absl::StatusOr<PublishOutcome> Publish(const PublishAsk& ask, int64_t* number);
  // Removes a folder that holds no generation, with its verdicts.
  void RemoveIfEmpty() const;
  // Serves generation `number` again; 0: the previous one. Fails as Registry::Rollback does.
  absl::StatusOr<PublishOutcome> Rollback(int64_t number);

  // A copy that shares the generations; its paths are relative to the shelf's folder.
  CorrectionState state() const;

 private:
  int64_t ActiveNumber() const;
  // The highest number that this shelf saw, even if the folder was removed since.
  int64_t HighestKnown() const;
  // Forgets old verdicts, but not those of what is served, was served before or stands in ACTIVE.
  void ForgetOldVerdicts(std::map<int64_t, Verdict>& verdicts) const;
  // Removes a generation that was not published, so that it is not found and served later.
  void Withdraw(int64_t number, const absl::Status& why);
  std::string GenerationFolder(int64_t number) const;
  ShelfSnapshot Snapshot() const;
  // Reads both files if one of them changed since the last time. True: they were read.
  absl::StatusOr<bool> ReadState();
  // `generation` as it passed; fails where it did not, or cannot be loaded.
  absl::StatusOr<Candidate> LoadPassed(int64_t number) const;
  absl::Status ServeFromStart(int64_t number);
  std::string TooFarAbove() const;
  absl::Status Warm(Candidate& candidate) const;
  // All checks of a candidate, the gate included; fills outcome->gate.
  absl::StatusOr<Candidate> Examine(int64_t number, PublishOutcome* outcome);
  absl::Status Remember(int64_t number, const absl::Status& examined,
                        const std::vector<GateMeasurement>& gate);
  // Adds a verdict to those in the file, which other daemons write too. The second: the folder is
  // locked already.
  absl::Status NoteVerdict(int64_t number, Verdict verdict);
  absl::Status NoteVerdictLocked(int64_t number, Verdict verdict);
  // Writes ACTIVE, then swaps. Swap: without the file.
  absl::Status Serve(Candidate candidate);
  void Swap(Candidate candidate);

  const Services* const services_;
  const std::shared_ptr<const Model> model_;
  const std::string folder_;
  const MethodChoice method_;

  std::map<int64_t, Verdict>
      verdicts_;  // as VERDICTS.json, but for old ones; ahead of it where it could not be written
  std::set<int64_t> set_aside_;  // failed by our own fault: tried again after a restart only
  std::optional<int64_t> active_on_disk_;  // as ACTIVE said last; served unless problem_
  std::string state_read_;                 // which ACTIVE and VERDICTS.json were read last
  std::optional<Candidate> active_;
  std::optional<Candidate> previous_;
  std::string problem_;
  bool unreadable_ = false;  // true: ACTIVE or VERDICTS.json cannot be read, so nothing is tried
  // The generation that ACTIVE names and that cannot be served, once that was said.
  std::optional<int64_t> not_served_;
  bool may_narrow_ = false;  // of the candidate under examination
};

}  // namespace hyperserve
