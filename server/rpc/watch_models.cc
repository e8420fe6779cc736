#include "server/rpc/watch_models.h"

#include <utility>

#include "core/plan/plan.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"
#include "server/rpc/call.h"
#include "server/rpc/model_events.h"

namespace hyperserve {
namespace {

constexpr size_t kWaitingMax = 1000;

const char* NameOfKind(RegistryEvent::Kind kind) {
  switch (kind) {
    case RegistryEvent::Kind::kModelLoaded:
      return "loaded";
    case RegistryEvent::Kind::kModelRefused:
      return "model_refused";
    case RegistryEvent::Kind::kModelUnloaded:
      return "unloaded";
    case RegistryEvent::Kind::kPublished:
      return "published";
    case RegistryEvent::Kind::kRefused:
      return "refused";
    case RegistryEvent::Kind::kRolledBack:
      return "rolled_back";
  }
  return "";
}

v1::WatchModelsReply ReplyOf(const RegistryEvent& event) {
  v1::WatchModelsReply reply;
  reply.set_model(event.model);
  reply.set_method(event.method);
  reply.set_generation(event.generation);
  reply.set_event(NameOfKind(event.kind));
  reply.set_source(event.source);
  return reply;
}

v1::WatchModelsReply Served(const ServedModel& model, const CorrectionState* state) {
  v1::WatchModelsReply reply;
  reply.set_model(model.name);
  reply.set_event("served");
  if (state != nullptr) {
    reply.set_method(PrintMethod(state->method));
    reply.set_generation(state->active->number);
  }
  return reply;
}

}  // namespace

WatchModels::WatchModels(Environment* environment, grpc::GenericCallbackServerContext* context)
    : IncomingCall(environment, context, "WatchModels", CallKind::kStream, &request_),
      environment_(environment),
      self_(this) {
  Read();
}

void WatchModels::Begin() {
  std::shared_ptr<WatchModels> self;
  {
    const std::lock_guard lock(mutex_);
    self = self_;  // another thread may end the call meanwhile
    begun_ = true;
  }
  const auto registry = call().Admit();
  if (!registry.ok()) {
    Stop(registry.status());
    return;
  }
  const auto late = [weak = std::weak_ptr(self)] {
    const std::shared_ptr<WatchModels> watcher = weak.lock();
    if (watcher == nullptr) return;
    watcher->Stop(absl::DeadlineExceededError("the call's deadline passed; watch again"));
  };
  {
    const std::lock_guard lock(mutex_);
    if (self_ == nullptr) return;
    deadline_alarm_ =
        environment_->alarms.Set(call().deadline() - environment_->clock->Now(), late);
  }
  // Joined first: what changes meanwhile is told twice rather than never.
  const int64_t listener =
      environment_->events.Join([weak = std::weak_ptr(self)](const RegistryEvent* event) {
        const std::shared_ptr<WatchModels> watcher = weak.lock();
        if (watcher == nullptr) return;
        if (event == nullptr) {
          watcher->Stop(absl::UnavailableError("the server is shutting down; try another one"));
        } else {
          watcher->Put(ReplyOf(*event));
        }
      });
  bool gone = false;
  {
    const std::lock_guard lock(mutex_);
    gone = self_ == nullptr;
    listener_ = listener;
  }
  if (gone) environment_->events.Leave(listener);  // Gone did not know it
  for (const auto& served : (*registry)->List()) {
    Put(Served(*served, nullptr));
    for (const CorrectionState& state : served->corrections) {
      if (state.active != nullptr) Put(Served(*served, &state));
    }
  }
}

void WatchModels::Put(v1::WatchModelsReply event) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < kWaitingMax) {
      waiting_.push_back(std::move(event));
    } else if (status_.ok()) {
      status_ = absl::ResourceExhaustedError("events are not read; watch again");
    }
  }
  Go();
}

void WatchModels::Stop(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    status_.Update(why);
  }
  Go();
}

void WatchModels::Go() {
  absl::Status end;
  {
    const std::lock_guard lock(mutex_);
    if (writing_ || finished_) return;
    if (status_.ok() && call().cancelled()) status_ = absl::CancelledError("the client went away");
    if (!status_.ok()) {
      finished_ = true;
      end = status_;
    } else if (!waiting_.empty()) {
      in_writing_ = Serialize(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
    } else {
      return;
    }
  }
  if (end.ok()) {
    StartWrite(&in_writing_);
  } else {
    Finish(call().End(end));
  }
}

void WatchModels::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) status_.Update(absl::CancelledError("the client went away"));
  }
  Go();
}

void WatchModels::OnCancel() {
  IncomingCall::OnCancel();
  bool begun = false;
  {
    const std::lock_guard lock(mutex_);
    begun = begun_;
  }
  if (begun) Go();
}

void WatchModels::Gone() {
  int64_t listener = 0;
  std::shared_ptr<WatchModels> last;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
    last.swap(self_);
    environment_->alarms.CallOff(deadline_alarm_);
  }
  environment_->events.Leave(listener);
}

}  // namespace hyperserve
