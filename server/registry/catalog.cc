#include "server/registry/catalog.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/candidate.h"
#include "server/registry/model_folder.h"

namespace hyperserve {
namespace {

// The sources of events.
constexpr char kStart[] = "start";
constexpr char kRpc[] = "rpc";
constexpr char kFolder[] = "folder";

constexpr char kGone[] = "gone";  // in place of a stamp

std::string FolderName(const std::string& folder) {
  return std::filesystem::path(folder).filename().string();
}

}  // namespace

Catalog::Catalog(const RegistryOptions* options, const Shelf::Services* services,
                 std::function<void(const RegistryEvent&)> on_event)
    : options_(*options), services_(*services), on_event_(std::move(on_event)) {}

absl::Status Catalog::LoadAll() {
  HS_ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                      ListModelFolders(options_.repository));
  std::string problems;
  for (const std::string& folder : folders) {
    const absl::Status status = LoadOrReport(folder, kStart);
    HS_RETURN_IF_ERROR(services_.go_on());
    if (!status.ok()) absl::StrAppend(&problems, "; ", FolderName(folder), ": ", status.message());
  }
  if (!loaded_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.repository, ": not one model could be loaded",
                   folders.empty() ? " (no folder in it holds a model.json)" : problems));
}

absl::Status Catalog::LoadOrReport(const std::string& folder, const char* source) {
  const std::string name = FolderName(folder);
  const std::string stamp = StampOfModel(folder);
  absl::Status status = LoadModel(folder, source);
  if (status.ok() || !services_.go_on().ok()) return status;
  refused_[name] = stamp;
  Report({.kind = Event::Kind::kModelRefused,
          .model = name,
          .source = source,
          .detail = std::string(status.message())});
  if (loaded_.contains(name)) {
    SetProblem(name, absl::StrCat("its folder has changed and is not used: ",
                                  absl::StrReplaceAll(status.message(), {{folder + "/", ""}})));
  }
  return status;
}

absl::Status Catalog::LoadModel(const std::string& folder, const char* source) {
  LoadedModel fresh = {
      .folder = folder, .model = nullptr, .shelves = {}, .stamp = StampOfModel(folder)};
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<ServedModel> served,
                      ReadModelFolder(folder, options_.allow_code));
  fresh.model = served->model;
  HS_RETURN_IF_ERROR(services_.go_on());
  if (services_.warm)
    HS_RETURN_IF_ERROR(services_.warm(
        {.model = served->model, .correction = nullptr, .calibration = &served->calibration}));
  if (!options_.read_only) RemoveAbandoned(folder);
  for (const MethodChoice& method : ListHypersolverMethods(folder)) {
    served->corrections.push_back(AddShelf(fresh, method).state());
    HS_RETURN_IF_ERROR(services_.go_on());
  }
  LoadedModel& loaded = loaded_[served->name] = std::move(fresh);
  refused_.erase(served->name);
  unloaded_.erase(served->name);
  Show(served->name, served);
  Report({.kind = Event::Kind::kModelLoaded,
          .model = served->name,
          .source = source,
          .detail = served->problem.empty() ? absl::StrCat("base ", served->model->base_digest())
                                            : served->problem});
  for (const CorrectionState& state : served->corrections) {
    ReportStart(served->name, state, source);
  }
  LookAtFolder(served->name, loaded, source);
  return absl::OkStatus();
}

absl::Status Catalog::Load(const std::string& name) {
  HS_RETURN_IF_ERROR(CheckName(name));
  const std::string folder = absl::StrCat(options_.repository, "/", name);
  std::error_code unreadable;
  if (!std::filesystem::exists(folder + "/model.json", unreadable)) {
    return absl::NotFoundError(
        absl::StrCat("the repository has no folder '", name, "' with a model.json"));
  }
  const auto loaded = loaded_.find(name);
  if (loaded != loaded_.end() && loaded->second.stamp == StampOfModel(folder)) {
    return absl::AlreadyExistsError(absl::StrCat("model '", name, "' is loaded and unchanged"));
  }
  absl::Status status = LoadOrReport(folder, kRpc);
  if (!status.ok()) HS_RETURN_IF_ERROR(services_.go_on());
  return status;
}

absl::Status Catalog::Unload(const std::string& name) {
  HS_RETURN_IF_ERROR(FindModel(name).status());
  unloaded_.insert(name);
  loaded_.erase(name);
  Show(name, nullptr);
  Report({.kind = Event::Kind::kModelUnloaded,
          .model = name,
          .source = kRpc,
          .detail = "it stays out until LoadModel or a restart"});
  return absl::OkStatus();
}

void Catalog::LookAtModel(const std::string& folder) {
  const std::string name = FolderName(folder);
  if (unloaded_.contains(name)) return;
  const auto loaded = loaded_.find(name);
  const bool known = loaded != loaded_.end();
  const std::string stamp = StampOfModel(folder);
  const auto refused = refused_.find(name);
  const bool tried = refused != refused_.end() && refused->second == stamp;
  const bool same = known && loaded->second.stamp == stamp;
  if (!same && !tried && IsSettled(folder)) {
    LoadOrReport(folder, kFolder).IgnoreError();  // an event says it
    return;
  }
  if (same && refused != refused_.end()) {  // it is as it was
    refused_.erase(refused);
    SetProblem(name, "");
  }
  if (known) LookAtFolder(name, loaded->second, kFolder);
}

void Catalog::LookAtFolders() {
  const absl::StatusOr<std::vector<std::string>> folders = ListModelFolders(options_.repository);
  if (!folders.ok()) return;  // perhaps for a moment; what is loaded stays
  for (const auto& [name, loaded] : loaded_) {
    if (std::ranges::find(*folders, loaded.folder) != folders->end()) continue;
    if (std::exchange(refused_[name], kGone) == kGone) continue;  // it was said
    constexpr char kWords[] = "its folder is gone; what is loaded stays";
    SetProblem(name, kWords);
    Report(
        {.kind = Event::Kind::kModelRefused, .model = name, .source = kFolder, .detail = kWords});
  }
  for (const std::string& folder : *folders) {
    if (!services_.go_on().ok()) return;
    LookAtModel(folder);
  }
}

void Catalog::SetProblem(const std::string& name, std::string problem) {
  auto now = std::make_shared<ServedModel>(**Pin(name));
  now->problem = std::move(problem);
  Show(name, now);
}

void Catalog::Show(const std::string& name, const std::shared_ptr<ServedModel>& now) {
  std::shared_ptr<const ServedModel> before;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto shown = served_.find(name); shown != served_.end()) before = shown->second;
    if (now == nullptr) {
      served_.erase(name);
    } else {
      served_[name] = now;
    }
  }
  if (before == nullptr) return;
  RetireUnshown(*before, now == nullptr ? ServedModel() : *now);
  if (now == nullptr || now->model != before->model) retired_.Add(before->model);
  retired_.Add(std::move(before));
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
  auto now = std::make_shared<ServedModel>(**Pin(name));
  now->corrections.clear();
  for (const Shelf& shelf : loaded.shelves) now->corrections.push_back(shelf.state());
  Show(name, now);
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
      served_.empty() ? "'; none is loaded" : "'; loaded: ",
      absl::StrJoin(served_, ", ",
                    [](std::string* out, const auto& entry) { out->append(entry.first); })));
}

bool Catalog::DropUnpinned() {
  retired_.DropUnpinned();
  return !retired_.empty();
}

}  // namespace hyperserve
