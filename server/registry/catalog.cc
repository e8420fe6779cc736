#include "server/registry/catalog.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/candidate.h"

namespace hyperserve {
namespace {

// The sources of events.
constexpr char kStart[] = "start";
constexpr char kRpc[] = "rpc";
constexpr char kFolder[] = "folder";

}  // namespace

Catalog::Catalog(const RegistryOptions* options, const Shelf::Services* services,
                 std::function<void(const RegistryEvent&)> on_event)
    : options_(*options), services_(*services), on_event_(std::move(on_event)) {}

absl::Status Catalog::LoadAll() {
  HS_ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                      ListModelFolders(options_.repository));
  std::string problems;
  for (const std::string& folder : folders) {
    const std::string name = std::filesystem::path(folder).filename().string();
    const absl::Status status = LoadModel(folder);
    HS_RETURN_IF_ERROR(services_.go_on());
    if (!status.ok()) {
      absl::StrAppend(&problems, "; ", name, ": ", status.message());
      Report({.kind = Event::Kind::kModelRefused,
              .model = name,
              .source = kStart,
              .detail = std::string(status.message())});
    }
  }
  if (!loaded_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.repository, ": not one model could be loaded",
                   folders.empty() ? " (no folder in it holds a model.json)" : problems));
}

absl::Status Catalog::LoadModel(const std::string& folder) {
  auto served = std::make_shared<ServedModel>();
  served->name = std::filesystem::path(folder).filename().string();
  HS_RETURN_IF_ERROR(CheckName(served->name));
  HS_ASSIGN_OR_RETURN(served->spec_json, ReadFile(folder + "/model.json", kModelJsonBytesMax));
  HS_ASSIGN_OR_RETURN(const std::string weights,
                      ReadFile(folder + "/weights.safetensors", kModelWeightsBytesMax));
  HS_ASSIGN_OR_RETURN(served->model, Model::FromBytes(served->spec_json, weights));
  absl::StatusOr<Calibration> calibration =
      LoadCalibration(folder + "/calibration.json", *served->model);
  if (calibration.ok()) {
    served->calibration = *std::move(calibration);
  } else if (!absl::IsNotFound(calibration.status())) {
    served->problem = absl::StrCat("calibration.json: ", calibration.status().message());
  }
  HS_RETURN_IF_ERROR(services_.go_on());
  if (services_.warm)
    HS_RETURN_IF_ERROR(services_.warm(
        {.model = served->model, .correction = nullptr, .calibration = &served->calibration}));
  LoadedModel& loaded = loaded_[served->name];
  loaded.folder = folder;
  loaded.model = served->model;
  const Event event = {.kind = Event::Kind::kModelLoaded,
                       .model = served->name,
                       .source = kStart,
                       .detail = served->problem.empty()
                                     ? absl::StrCat("base ", served->model->base_digest())
                                     : served->problem};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    served_[event.model] = std::move(served);
  }
  Report(event);
  if (!options_.read_only) RemoveAbandoned(folder);
  LookAtFolder(event.model, loaded, kStart);
  return absl::OkStatus();
}

void Catalog::LookAtFolder(const std::string& name, LoadedModel& loaded, const char* source) {
  for (const MethodChoice& method : ListHypersolverMethods(loaded.folder)) {
    if (!services_.go_on().ok()) return;
    Shelf* shelf = FindShelf(loaded, method);
    if (shelf == nullptr) {
      shelf = &AddShelf(loaded, method);
      ShowStates(name, loaded);
      ReportStart(name, shelf->state(), source);
    } else {
      FollowOthers(name, loaded, *shelf);
    }
    if (!options_.read_only) RemoveAbandoned(HypersolverFolder(loaded.folder, method));
    while (services_.go_on().ok()) {
      const std::optional<int64_t> number = shelf->NextToTry();
      if (!number.has_value()) break;
      const absl::StatusOr<PublishOutcome> outcome = shelf->Try(*number);
      ShowStates(name, loaded);
      if (outcome.ok() || services_.go_on().ok()) {
        ReportTried(name, method, *number, source, outcome);
      }
    }
  }
}

void Catalog::ReportStart(const std::string& name, const CorrectionState& state,
                          const char* source) const {
  Event event = {.model = name, .method = PrintMethod(state.method), .source = source};
  if (!state.problem.empty() && services_.go_on().ok()) {
    event.kind = Event::Kind::kRefused;
    event.detail = state.problem;
    Report(event);
  }
  if (state.active == nullptr) return;
  event.kind = Event::Kind::kPublished;
  event.generation = state.active->number;
  event.detail = "served";
  Report(event);
}

void Catalog::FollowOthers(const std::string& name, LoadedModel& loaded, Shelf& shelf) {
  const std::optional<absl::StatusOr<PublishOutcome>> followed = shelf.Follow();
  if (!followed.has_value()) return;
  ShowStates(name, loaded);
  Event event = {.kind = Event::Kind::kRefused,
                 .model = name,
                 .method = PrintMethod(shelf.state().method),
                 .source = kFolder};
  if (followed->ok()) {
    const PublishOutcome& outcome = **followed;
    const bool back = outcome.generation < outcome.previous_generation;
    event.kind = back ? Event::Kind::kRolledBack : Event::Kind::kPublished;
    event.generation = outcome.generation;
    event.detail = absl::StrCat("ACTIVE names it, from generation ", outcome.previous_generation);
  } else {
    event.detail = std::string(followed->status().message());
  }
  Report(event);
}

Shelf* Catalog::FindShelf(LoadedModel& loaded, const MethodChoice& method) {
  const auto found =
      std::find_if(loaded.shelves.begin(), loaded.shelves.end(),
                   [&](const Shelf& shelf) { return shelf.state().method == method; });
  return found == loaded.shelves.end() ? nullptr : &*found;
}

Shelf& Catalog::AddShelf(LoadedModel& loaded, const MethodChoice& method) {
  Shelf& shelf = loaded.shelves.emplace_back(&services_, loaded.model,
                                             HypersolverFolder(loaded.folder, method), method);
  shelf.Start();
  return shelf;
}

absl::StatusOr<Catalog::LoadedModel*> Catalog::FindModel(const std::string& name) {
  HS_RETURN_IF_ERROR(Pin(name).status());
  return &loaded_.at(name);
}

absl::StatusOr<PublishOutcome> Catalog::Publish(const PublishAsk& ask) {
  if (options_.read_only) return absl::FailedPreconditionError("the repository is read-only");
  HS_ASSIGN_OR_RETURN(LoadedModel * loaded, FindModel(ask.model));
  HS_ASSIGN_OR_RETURN(const MethodChoice choice, ParseMethod(ask.method));
  HS_RETURN_IF_ERROR(CheckGenerationFiles(ask.files));
  if (ask.parent_generation.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parent_generation ", *ask.parent_generation, " is below 0"));
  }
  std::error_code unreadable;
  if (!std::filesystem::exists(loaded->folder + "/model.json", unreadable)) {
    return absl::FailedPreconditionError(absl::StrCat(loaded->folder, "/model.json is gone"));
  }
  Shelf* shelf = FindShelf(*loaded, choice);
  const bool added = shelf == nullptr;
  if (added) {
    shelf = &AddShelf(*loaded, choice);
  } else {
    FollowOthers(ask.model, *loaded, *shelf);
  }
  int64_t number = 0;
  const absl::StatusOr<PublishOutcome> outcome = shelf->Publish(ask, &number);
  // Every alpha is a method: its refused candidates must not fill the disk and the list.
  const bool endless = choice.method == Method::kAlpha;
  if (added && !outcome.ok() && (number == 0 || endless)) {
    if (endless) shelf->RemoveIfEmpty();
    loaded->shelves.pop_back();
  }
  ShowStates(ask.model, *loaded);
  if (!services_.gave_way()) ReportTried(ask.model, choice, number, kRpc, outcome);
  return outcome;
}

absl::StatusOr<PublishOutcome> Catalog::Rollback(const std::string& model,
                                                 const std::string& method, int64_t generation) {
  if (options_.read_only) return absl::FailedPreconditionError("the repository is read-only");
  HS_ASSIGN_OR_RETURN(LoadedModel * loaded, FindModel(model));
  HS_ASSIGN_OR_RETURN(const MethodChoice choice, ParseMethod(method));
  if (generation < 0) {
    return absl::InvalidArgumentError(absl::StrCat("generation ", generation, " is below 0"));
  }
  Shelf* shelf = FindShelf(*loaded, choice);
  if (shelf == nullptr) {
    const std::string known =
        absl::StrJoin(loaded->shelves, ", ", [](std::string* out, const Shelf& there) {
          out->append(PrintMethod(there.state().method));
        });
    return absl::NotFoundError(absl::StrCat(model, " has no hypersolver for ", method,
                                            "; those it has: ", known.empty() ? "none" : known));
  }
  FollowOthers(model, *loaded, *shelf);
  const absl::StatusOr<PublishOutcome> outcome = shelf->Rollback(generation);
  if (outcome.ok()) {
    ShowStates(model, *loaded);
    Report({.kind = Event::Kind::kRolledBack,
            .model = model,
            .method = method,
            .generation = outcome->generation,
            .source = kRpc,
            .detail = absl::StrCat("from generation ", outcome->previous_generation)});
  }
  return outcome;
}

void Catalog::RetireUnshown(const ServedModel& before, const ServedModel& now) {
  const auto shown = [&](const std::shared_ptr<const Generation>& generation) {
    return std::any_of(now.corrections.begin(), now.corrections.end(),
                       [&](const CorrectionState& state) {
                         return state.active == generation || state.previous == generation;
                       });
  };
  for (const CorrectionState& state : before.corrections) {
    for (const std::shared_ptr<const Generation>& generation : {state.active, state.previous}) {
      if (generation == nullptr || shown(generation)) continue;
      retired_.Add(generation->correction);
      retired_.Add(generation);
    }
  }
}

void Catalog::ShowStates(const std::string& name, const LoadedModel& loaded) {
  std::shared_ptr<const ServedModel> before = *Pin(name);
  auto now = std::make_shared<ServedModel>(*before);
  now->corrections.clear();
  for (const Shelf& shelf : loaded.shelves) now->corrections.push_back(shelf.state());
  RetireUnshown(*before, *now);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    served_[name] = std::move(now);
  }
  retired_.Add(std::move(before));
}

void Catalog::Report(const Event& event) const {
  if (on_event_) on_event_(event);
}

void Catalog::ReportTried(const std::string& model, const MethodChoice& method, int64_t generation,
                          const char* source, const absl::StatusOr<PublishOutcome>& outcome) const {
  Report({.kind = outcome.ok() ? Event::Kind::kPublished : Event::Kind::kRefused,
          .model = model,
          .method = PrintMethod(method),
          .generation = generation,
          .source = source,
          .detail = outcome.ok() ? DecideGate(outcome->gate, options_.gate_margin).reason
                                 : std::string(outcome.status().message())});
}

std::vector<std::shared_ptr<const ServedModel>> Catalog::List() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const ServedModel>> models;
  for (const auto& [name, model] : served_) models.push_back(model);
  return models;
}

absl::StatusOr<std::shared_ptr<const ServedModel>> Catalog::Pin(std::string_view model) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = served_.find(model); found != served_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "no model '", absl::string_view(model.data(), std::min<size_t>(model.size(), 80)),
      "'; loaded: ", absl::StrJoin(served_, ", ", [](std::string* out, const auto& entry) {
        out->append(entry.first);
      })));
}

void Catalog::LookAtFolders() {
  for (auto& [name, loaded] : loaded_) LookAtFolder(name, loaded, kFolder);
}

bool Catalog::DropUnpinned() {
  retired_.DropUnpinned();
  return !retired_.empty();
}

}  // namespace hyperserve
