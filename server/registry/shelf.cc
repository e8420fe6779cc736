#include "server/registry/shelf.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "server/clock/clock.h"

namespace hyperserve {
namespace {

double SecondsSince(Clock::TimePoint start) {
  return std::chrono::duration<double>(Clock::Real().Now() - start).count();
}

// A refusal is the candidate's fault and is final. Any other failure is ours and may pass later.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
         absl::IsNotFound(status);
}

}  // namespace

std::vector<int64_t> StartOrder(const ShelfSnapshot& snapshot) {
  if (snapshot.active.has_value()) return {*snapshot.active};
  std::vector<int64_t> order;
  for (const int64_t number : snapshot.generations) {
    const auto verdict = snapshot.verdicts.find(number);
    if (verdict == snapshot.verdicts.end() || verdict->second.passed) order.push_back(number);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::optional<int64_t> NextUntried(const ShelfSnapshot& snapshot) {
  for (const int64_t number : snapshot.generations) {
    if (!snapshot.verdicts.contains(number)) return number;
  }
  return std::nullopt;
}

std::vector<int64_t> PreviousOrder(const ShelfSnapshot& snapshot) {
  std::vector<int64_t> order;
  for (const int64_t number : snapshot.generations) {
    const auto verdict = snapshot.verdicts.find(number);
    const bool passed = verdict != snapshot.verdicts.end() && verdict->second.passed;
    if (passed && number < snapshot.active.value_or(0)) order.push_back(number);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

Shelf::Shelf(const Services* services, std::shared_ptr<const Model> model, std::string folder,
             MethodChoice method)
    : services_(services), model_(std::move(model)), folder_(std::move(folder)), method_(method) {}

int64_t Shelf::ActiveNumber() const { return active_ ? active_->generation->number : 0; }

std::string Shelf::GenerationFolder(int64_t number) const {
  return absl::StrCat(folder_, "/", number);
}

ShelfSnapshot Shelf::Snapshot() const {
  return {
      .generations = ListGenerations(folder_), .verdicts = verdicts_, .active = active_on_disk_};
}

CorrectionState Shelf::state() const {
  return {.method = method_,
          .active = active_ ? active_->generation : nullptr,
          .previous = previous_ ? previous_->generation : nullptr,
          .problem = problem_};
}

absl::Status Shelf::ReadState() {
  HS_ASSIGN_OR_RETURN(verdicts_, ReadVerdicts(folder_));
  HS_ASSIGN_OR_RETURN(active_on_disk_, ReadActive(folder_));
  return absl::OkStatus();
}

void Shelf::Start() {
  absl::Status first_problem = ReadState();
  unreadable_ = !first_problem.ok();
  if (!unreadable_) {
    for (const int64_t number : StartOrder(Snapshot())) {
      first_problem.Update(ServeFromStart(number));
      if (active_.has_value()) break;
    }
  }
  if (!active_.has_value()) problem_ = std::string(first_problem.message());
  if (active_.has_value()) {
    for (const int64_t number : PreviousOrder(Snapshot())) {
      auto candidate = LoadCandidate(GenerationFolder(number), number, method_, *model_);
      if (!candidate.ok()) continue;
      previous_ = *std::move(candidate);
      break;
    }
  }
}

absl::Status Shelf::ServeFromStart(int64_t number) {
  const auto verdict = verdicts_.find(number);
  if (verdict == verdicts_.end()) return Try(number).status();
  if (!verdict->second.passed) {
    return absl::FailedPreconditionError(absl::StrCat(
        "generation ", number, " is ACTIVE but was refused: ", verdict->second.reason));
  }
  absl::StatusOr<Candidate> candidate =
      LoadCandidate(GenerationFolder(number), number, method_, *model_);
  const std::string context = absl::StrCat("generation ", number);
  HS_RETURN_IF_ERROR(Annotate(candidate.status(), context));
  return Annotate(Serve(*std::move(candidate)), context);
}

std::optional<int64_t> Shelf::NextToTry() const {
  if (unreadable_) return std::nullopt;
  ShelfSnapshot snapshot = Snapshot();
  std::erase_if(snapshot.generations,
                [this](int64_t number) { return set_aside_.contains(number); });
  return NextUntried(snapshot);
}

absl::Status Shelf::Warm(const Generation& generation) const {
  if (!services_->warm) return absl::OkStatus();
  return services_->warm({.model = model_,
                          .correction = generation.correction,
                          .calibration = &generation.calibration});
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
  const std::shared_ptr<const Hypersolver>& correction = candidate.generation->correction;
  HS_RETURN_IF_ERROR(Warm(*candidate.generation));
  GateInput input = {.model = model_, .candidate = correction, .probes = {candidate.probe}};
  if (active_.has_value()) {
    input.active = active_->generation->correction;
    if (active_->probe.bytes != candidate.probe.bytes) input.probes.push_back(active_->probe);
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
  verdicts_[number] = {.passed = examined.ok(),
                       .reason = examined.ok() ? DecideGate(gate, services_->margin).reason
                                               : std::string(examined.message())};
  return services_->read_only ? absl::OkStatus() : WriteVerdicts(folder_, verdicts_);
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
  if (active_.has_value()) previous_ = std::move(active_);
  active_ = std::move(candidate);
  problem_.clear();
  return absl::OkStatus();
}

absl::StatusOr<PublishOutcome> Shelf::Publish(const GenerationFiles& files,
                                              std::optional<int64_t> parent_generation,
                                              int64_t* number) {
  if (unreadable_) return absl::FailedPreconditionError(problem_);
  if (parent_generation.has_value() && *parent_generation != ActiveNumber()) {
    return absl::AbortedError(absl::StrCat("made to follow generation ", *parent_generation,
                                           "; active is ", ActiveNumber(), " (0: none)"));
  }
  // Before anything is written: else a call could make a folder for any method's name.
  const auto spec = ParseHypersolverSpec(files.at("hypersolver.json"), model_->state_shape());
  if (!spec.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("hypersolver.json: ", spec.status().message()));
  }
  HS_RETURN_IF_ERROR(Annotate(CheckMethod(*spec, method_), "hypersolver.json"));
  HS_ASSIGN_OR_RETURN(*number, WriteGeneration(folder_, files, HighestKnown()));
  absl::StatusOr<PublishOutcome> outcome = Try(*number);
  if (verdicts_.contains(*number)) {
    RemoveIfRefused(*number);
  } else if (!set_aside_.contains(*number)) {
    Withdraw(*number, outcome.status());
  }
  return outcome;
}

int64_t Shelf::HighestKnown() const {
  int64_t highest = std::max(ActiveNumber(), active_on_disk_.value_or(0));
  if (!verdicts_.empty()) highest = std::max(highest, verdicts_.rbegin()->first);
  if (!set_aside_.empty()) highest = std::max(highest, *set_aside_.rbegin());
  return highest;
}

void Shelf::RemoveIfRefused(int64_t number) const {
  // Only once VERDICTS.json has the number, which must not be used again.
  const auto on_disk = ReadVerdicts(folder_);
  if (!on_disk.ok()) return;
  const auto verdict = on_disk->find(number);
  if (verdict == on_disk->end() || verdict->second.passed) return;
  std::error_code ignored;
  std::filesystem::remove_all(GenerationFolder(number), ignored);
}

void Shelf::Withdraw(int64_t number, const absl::Status& why) {
  std::error_code ignored;
  std::filesystem::remove_all(GenerationFolder(number), ignored);
  verdicts_[number] = {.reason = std::string(why.message())};
  // If this fails, the only harm is that the number may be used again after a restart.
  WriteVerdicts(folder_, verdicts_).IgnoreError();
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
    if (refused || verdict == verdicts_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("generation ", number, " never passed its check"));
    }
    HS_ASSIGN_OR_RETURN(target, LoadCandidate(GenerationFolder(number), number, method_, *model_));
  }
  outcome.generation = target->generation->number;
  if (outcome.generation != ActiveNumber()) {
    const absl::Status warm = Warm(*target->generation);
    HS_RETURN_IF_ERROR(services_->go_on());
    HS_RETURN_IF_ERROR(warm);
    HS_RETURN_IF_ERROR(Serve(*std::move(target)));
  }
  outcome.seconds = SecondsSince(start);
  return outcome;
}

}  // namespace hyperserve
