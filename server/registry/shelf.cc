#include "server/registry/shelf.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/io/file_lock.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "server/clock/clock.h"
#include "server/registry/model_folder.h"

namespace hyperserve {
namespace {

// Stands in VERDICTS.json while a candidate of a call is examined.
constexpr char kUnderExamination[] = "its daemon ended while it was examined; publish it again";

double SecondsSince(Clock::TimePoint start) {
  return std::chrono::duration<double>(Clock::Real().Now() - start).count();
}

// A refusal is the candidate's fault and is final. Any other failure is ours and may pass later.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsNotFound(status);
}

}  // namespace

Shelf::Shelf(const Services* services, std::shared_ptr<const Model> model, std::string folder,
             MethodChoice method)
    : services_(services), model_(std::move(model)), folder_(std::move(folder)), method_(method) {}

int64_t Shelf::ActiveNumber() const { return active_ ? active_->generation->number : 0; }

std::string Shelf::GenerationFolder(int64_t number) const {
  return absl::StrCat(folder_, "/", number);
}

ShelfSnapshot Shelf::Snapshot() const {
  ShelfSnapshot snapshot = {
      .generations = ListGenerations(folder_), .verdicts = verdicts_, .active = active_on_disk_};
  SkipFarAbove(HighestKnown(), snapshot.generations);
  return snapshot;
}

CorrectionState Shelf::state() const {
  return {.method = method_,
          .active = active_ ? active_->generation : nullptr,
          .previous = previous_ ? previous_->generation : nullptr,
          // It goes to clients, who need not know the server's paths.
          .problem = absl::StrReplaceAll(problem_, {{folder_ + "/", ""}})};
}

void Shelf::ForgetOldVerdicts(std::map<int64_t, Verdict>& verdicts) const {
  std::vector<int64_t> served = {ActiveNumber(), active_on_disk_.value_or(0)};
  if (previous_.has_value()) served.push_back(previous_->generation->number);
  ForgetOld(served, verdicts);
}

absl::StatusOr<bool> Shelf::ReadState() {
  const std::string now = StampOfHypersolvers(folder_);
  if (now == state_read_) return false;
  // ACTIVE first: whoever writes it has written the verdict before.
  const auto active = ReadActive(folder_);
  const auto verdicts = ReadVerdicts(folder_);
  if (verdicts.ok()) {
    for (const auto& [number, verdict] : *verdicts) verdicts_[number] = verdict;
  }
  if (active.ok() && active->has_value()) active_on_disk_ = *active;
  ForgetOldVerdicts(verdicts_);
  HS_RETURN_IF_ERROR(active.status());
  HS_RETURN_IF_ERROR(verdicts.status());
  state_read_ = now;
  return true;
}

void Shelf::Start() {
  absl::Status first_problem = ReadState().status();
  unreadable_ = !first_problem.ok();
  for (const int64_t number : StartOrder(Snapshot())) {
    if (active_.has_value() || !services_->go_on().ok()) break;
    first_problem.Update(ServeFromStart(number));
  }
  // Where ACTIVE says nothing, what was tried before is no problem.
  const bool as_wanted = active_.has_value() && !unreadable_ && active_on_disk_ == ActiveNumber();
  problem_ = as_wanted ? "" : std::string(first_problem.message());
  not_served_ = as_wanted ? std::nullopt : active_on_disk_;
  if (problem_.empty()) problem_ = TooFarAbove();
  if (!active_.has_value()) return;
  if (!as_wanted) {
    absl::StrAppend(&problem_, "; generation ", ActiveNumber(), " is served instead");
  }
  for (const int64_t number : PreviousOrder(Snapshot())) {
    if (number == ActiveNumber()) continue;
    absl::StatusOr<Candidate> candidate = LoadPassed(number);
    if (!candidate.ok()) continue;
    previous_ = *std::move(candidate);
    break;
  }
}

// The folder that is not read because of its number, in words; empty: there is none.
std::string Shelf::TooFarAbove() const {
  const std::vector<int64_t> all = ListGenerations(folder_);
  if (all.size() == Snapshot().generations.size()) return "";
  return absl::StrCat("generation ", all.back(), " is more than ", kGenerationGapMax,
                      " above the others and is not read: rename its folder");
}

absl::StatusOr<Candidate> Shelf::LoadPassed(int64_t number) const {
  const auto verdict = verdicts_.find(number);
  if (verdict == verdicts_.end() || !verdict->second.passed) {
    return absl::FailedPreconditionError(absl::StrCat(
        "generation ", number, " is ACTIVE but ",
        verdict == verdicts_.end() ? "never passed its check"
                                   : absl::StrCat("was refused: ", verdict->second.reason)));
  }
  absl::StatusOr<Candidate> candidate =
      LoadCandidate(GenerationFolder(number), number, method_, *model_);
  HS_RETURN_IF_ERROR(Annotate(candidate.status(), absl::StrCat("generation ", number)));
  return candidate;
}

absl::Status Shelf::ServeFromStart(int64_t number) {
  const bool untried = !verdicts_.contains(number);
  if (untried && (unreadable_ || IsBeingWritten(GenerationFolder(number)))) {
    return absl::FailedPreconditionError(absl::StrCat("generation ", number, " is not tried yet"));
  }
  if (untried) return Try(number).status();
  HS_ASSIGN_OR_RETURN(Candidate candidate, LoadPassed(number));
  Warm(candidate).IgnoreError();  // it passed: what is not warm costs time only
  // ACTIVE is left as it is where it names a generation that cannot be used: it may be mended.
  if (active_on_disk_.has_value() || unreadable_) {
    Swap(std::move(candidate));
    return absl::OkStatus();
  }
  return Annotate(Serve(std::move(candidate)), absl::StrCat("generation ", number));
}

std::optional<absl::StatusOr<PublishOutcome>> Shelf::Follow() {
  const Clock::TimePoint start = Clock::Real().Now();
  const absl::StatusOr<bool> read = ReadState();
  if (read.ok() && !*read) return std::nullopt;
  const bool was_unreadable = std::exchange(unreadable_, !read.ok());
  if (!read.ok()) {
    if (was_unreadable) return std::nullopt;  // it was said
    problem_ = std::string(read.status().message());
    return read.status();
  }
  if (was_unreadable) problem_.clear();
  if (!active_on_disk_.has_value() || active_on_disk_ == ActiveNumber()) return std::nullopt;
  PublishOutcome outcome = {.generation = *active_on_disk_, .previous_generation = ActiveNumber()};
  absl::StatusOr<Candidate> chosen = LoadPassed(*active_on_disk_);
  absl::Status status = chosen.status();
  if (status.ok()) status = Warm(*chosen);
  if (!services_->go_on().ok()) {  // another time
    state_read_.clear();
    return std::nullopt;
  }
  if (!status.ok()) {
    if (std::exchange(not_served_, active_on_disk_) == active_on_disk_) return std::nullopt;
    problem_ = std::string(status.message());
    return status;
  }
  not_served_.reset();
  Swap(*std::move(chosen));
  outcome.seconds = SecondsSince(start);
  return outcome;
}

std::optional<int64_t> Shelf::NextToTry() const {
  if (unreadable_) return std::nullopt;
  ShelfSnapshot snapshot = Snapshot();
  const int64_t oldest = OldestKept(snapshot.verdicts);
  std::erase_if(snapshot.generations, [&](int64_t number) {
    if (number < oldest || snapshot.verdicts.contains(number)) return false;
    return set_aside_.contains(number) || IsBeingWritten(GenerationFolder(number));
  });
  return NextUntried(snapshot);
}

absl::Status Shelf::Warm(Candidate& candidate) const {
  if (!services_->warm) return absl::OkStatus();
  auto warmed = std::make_shared<Generation>(*candidate.generation);
  HS_RETURN_IF_ERROR(services_->warm(
      {.model = model_, .correction = warmed->correction, .calibration = &warmed->calibration}));
  candidate.generation = std::move(warmed);
  return absl::OkStatus();
}

absl::StatusOr<Candidate> Shelf::Examine(int64_t number, PublishOutcome* outcome) {
  if (active_on_disk_.value_or(0) > number) {
    return absl::FailedPreconditionError(absl::StrCat("not tried: generation ", *active_on_disk_,
                                                      " is newer and was served already"));
  }
  HS_RETURN_IF_ERROR(services_->go_on());
  HS_ASSIGN_OR_RETURN(Candidate candidate,
                      LoadCandidate(GenerationFolder(number), number, method_, *model_));
  HS_RETURN_IF_ERROR(services_->go_on());
  HS_RETURN_IF_ERROR(Warm(candidate));  // replaces the generation
  GateInput input = {.model = model_,
                     .candidate = candidate.generation->correction,
                     .probes = {candidate.probe},
                     .may_narrow = may_narrow_};
  if (active_.has_value()) {
    input.active = active_->generation->correction;
    const Probe &active = active_->probe, &own = candidate.probe;
    const bool same =
        active.x.bytes == own.x.bytes && active.condition.bytes == own.condition.bytes;
    if (!same) input.probes.push_back(active);
  }
  HS_ASSIGN_OR_RETURN(outcome->gate, services_->measure(input));
  const Verdict verdict = DecideGate(outcome->gate, services_->margin);
  if (!verdict.passed) return absl::FailedPreconditionError(verdict.reason);
  return candidate;
}

absl::Status Shelf::Remember(int64_t number, const absl::Status& examined,
                             const std::vector<GateMeasurement>& gate) {
  if (!examined.ok() && !IsRefusal(examined)) {
    set_aside_.insert(number);
    return absl::OkStatus();
  }
  const absl::Status noted =
      NoteVerdict(number, {.passed = examined.ok(),
                           .reason = examined.ok() ? DecideGate(gate, services_->margin).reason
                                                   : std::string(examined.message())});
  if (!noted.ok()) set_aside_.insert(number);
  return noted;
}

absl::Status Shelf::NoteVerdict(int64_t number, Verdict verdict) {
  if (services_->read_only) {
    verdicts_[number] = std::move(verdict);
    ForgetOldVerdicts(verdicts_);
    return absl::OkStatus();
  }
  HS_ASSIGN_OR_RETURN(const FileLock lock, LockHypersolverFolder(folder_));
  return NoteVerdictLocked(number, std::move(verdict));
}

absl::Status Shelf::NoteVerdictLocked(int64_t number, Verdict verdict) {
  HS_ASSIGN_OR_RETURN(const auto on_disk, ReadVerdicts(folder_));
  std::map<int64_t, Verdict> all = verdicts_;
  for (const auto& [noted, of_it] : on_disk) all[noted] = of_it;
  all[number] = std::move(verdict);
  ForgetOldVerdicts(all);
  HS_RETURN_IF_ERROR(WriteVerdicts(folder_, all));
  verdicts_ = std::move(all);
  return absl::OkStatus();
}

absl::StatusOr<PublishOutcome> Shelf::Try(int64_t number) {
  const Clock::TimePoint start = Clock::Real().Now();
  PublishOutcome outcome = {.generation = number, .previous_generation = ActiveNumber()};
  absl::StatusOr<Candidate> candidate = Examine(number, &outcome);
  const std::string context = absl::StrCat("generation ", number);
  if (!IsRefusal(candidate.status())) {  // the last check before the verdict and the swap
    HS_RETURN_IF_ERROR(Annotate(services_->go_on(), context));
  }
  HS_RETURN_IF_ERROR(Remember(number, candidate.status(), outcome.gate));
  if (!candidate.ok()) {
    const absl::Status& why = candidate.status();
    return Annotate(IsRefusal(why) ? absl::FailedPreconditionError(why.message()) : why, context);
  }
  HS_RETURN_IF_ERROR(Annotate(Serve(*std::move(candidate)), context));
  outcome.seconds = SecondsSince(start);
  return outcome;
}

absl::Status Shelf::Serve(Candidate candidate) {
  const int64_t number = candidate.generation->number;
  if (active_on_disk_ != number) {
    if (!services_->read_only) HS_RETURN_IF_ERROR(WriteActive(folder_, number));
    active_on_disk_ = number;
  }
  Swap(std::move(candidate));
  return absl::OkStatus();
}

void Shelf::Swap(Candidate candidate) {
  if (active_.has_value()) previous_ = std::move(active_);
  active_ = std::move(candidate);
  problem_.clear();
}

absl::StatusOr<PublishOutcome> Shelf::Publish(const PublishAsk& ask, int64_t* number) {
  if (unreadable_) return absl::FailedPreconditionError(problem_);
  if (ask.parent_generation.has_value() && *ask.parent_generation != ActiveNumber()) {
    return absl::AbortedError(absl::StrCat("made to follow generation ", *ask.parent_generation,
                                           "; active is ", ActiveNumber(), " (0: none)"));
  }
  // Before anything is written: else a call could make a folder for any method's name.
  const auto spec = ParseHypersolverSpec(ask.files.at("hypersolver.json"), model_->state_shape());
  if (!spec.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("hypersolver.json: ", spec.status().message()));
  }
  HS_RETURN_IF_ERROR(Annotate(CheckMethod(*spec, method_), "hypersolver.json"));
  const auto mark = [this](int64_t taken) {
    return NoteVerdictLocked(taken, {.reason = kUnderExamination});
  };
  HS_ASSIGN_OR_RETURN(*number, WriteGeneration(folder_, ask.files, HighestKnown(), mark));
  may_narrow_ = ask.may_narrow;
  absl::StatusOr<PublishOutcome> outcome = Try(*number);
  may_narrow_ = false;
  if (!outcome.ok()) Withdraw(*number, outcome.status());
  return outcome;
}

int64_t Shelf::HighestKnown() const {
  int64_t highest = std::max(ActiveNumber(), active_on_disk_.value_or(0));
  if (!verdicts_.empty()) highest = std::max(highest, verdicts_.rbegin()->first);
  if (!set_aside_.empty()) highest = std::max(highest, *set_aside_.rbegin());
  return highest;
}

void Shelf::Withdraw(int64_t number, const absl::Status& why) {
  std::error_code ignored;
  std::filesystem::remove_all(GenerationFolder(number), ignored);
  set_aside_.erase(number);
  const Verdict& known = verdicts_[number];
  if (!known.passed && known.reason != kUnderExamination) return;
  // Where the verdict cannot be written, the one that says "not to be served" still stands there.
  if (!NoteVerdict(number, {.reason = std::string(why.message())}).ok()) {
    verdicts_[number] = {.reason = std::string(why.message())};
  }
}

void Shelf::RemoveIfEmpty() const {
  if (!ListGenerations(folder_).empty()) return;
  std::error_code ignored;
  std::filesystem::remove(folder_ + "/VERDICTS.json", ignored);
  std::filesystem::remove(folder_, ignored);  // not where something else is in it
}

absl::StatusOr<PublishOutcome> Shelf::Rollback(int64_t number) {
  const Clock::TimePoint start = Clock::Real().Now();
  PublishOutcome outcome = {.previous_generation = ActiveNumber()};
  std::optional<Candidate> target;
  if (previous_.has_value() && (number == 0 || number == previous_->generation->number)) {
    target = previous_;
  } else if (number == 0) {
    return absl::FailedPreconditionError("there is no previous generation to return to");
  } else if (number == ActiveNumber()) {
    target = active_;
  } else {
    // The verdict first: a candidate that was published and refused has no folder.
    const auto verdict = verdicts_.find(number);
    const std::vector<int64_t> there = ListGenerations(folder_);
    const bool refused = verdict != verdicts_.end() && !verdict->second.passed;
    if (!refused && !std::binary_search(there.begin(), there.end(), number)) {
      return absl::NotFoundError(absl::StrCat("there is no generation ", number));
    }
    if (verdict == verdicts_.end() && number < OldestKept(verdicts_)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "of generation ", number, " no verdict is kept any more, only of the newest ",
          kVerdictsKept, ": publish its files again"));
    }
    if (refused || verdict == verdicts_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("generation ", number, " never passed its check"));
    }
    HS_ASSIGN_OR_RETURN(target, LoadCandidate(GenerationFolder(number), number, method_, *model_));
  }
  outcome.generation = target->generation->number;
  if (outcome.generation != ActiveNumber()) {
    const absl::Status warm = Warm(*target);
    HS_RETURN_IF_ERROR(services_->go_on());
    HS_RETURN_IF_ERROR(warm);
    HS_RETURN_IF_ERROR(Serve(*std::move(target)));
  }
  outcome.seconds = SecondsSince(start);
  return outcome;
}

}  // namespace hyperserve
