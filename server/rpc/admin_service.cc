#include <limits>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/model/repository/generation_files.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/rpc/call.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/services.h"
#include "server/rpc/unary_call.h"
#include "server/rpc/watch_models.h"

namespace hyperserve {
namespace {

absl::StatusOr<GenerationFiles> FilesFromWire(const v1::PublishHypersolverRequest& request) {
  GenerationFiles files;
  for (const v1::NamedFile& file : request.files()) {
    if (!files.emplace(file.name(), file.content()).second) {
      return absl::InvalidArgumentError(absl::StrCat("files: '", file.name(), "' stands twice"));
    }
  }
  return files;
}

void FillGate(const GateMeasurement& measured, v1::GateResult* result) {
  result->set_steps(measured.steps);
  result->set_candidate_error(measured.candidate_error);
  result->set_active_error(
      measured.active_error.value_or(std::numeric_limits<double>::quiet_NaN()));
  result->set_base_error(measured.base_error);
  result->set_claimed(measured.claimed);
}

void FillOutcome(const PublishOutcome& outcome, v1::PublishHypersolverReply* reply) {
  reply->set_generation(outcome.generation);
  reply->set_previous_generation(outcome.previous_generation);
  reply->set_seconds(outcome.seconds);
  for (const GateMeasurement& measured : outcome.gate) FillGate(measured, reply->add_gate());
}

absl::Status StartPublish(UnaryCall* unary, const v1::PublishHypersolverRequest& request,
                          v1::PublishHypersolverReply* reply) {
  HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
  HS_RETURN_IF_ERROR(unary->call().Pin(request.model()).status());
  HS_ASSIGN_OR_RETURN(GenerationFiles files, FilesFromWire(request));
  PublishAsk ask = {.model = request.model(),
                    .method = request.method(),
                    .files = std::move(files),
                    .may_narrow = request.allow_narrower()};
  if (request.has_parent_generation()) ask.parent_generation = request.parent_generation();
  registry->Publish(std::move(ask), unary->call().patience(),
                    [unary, reply](const absl::StatusOr<PublishOutcome>& outcome) {
                      if (outcome.ok()) FillOutcome(*outcome, reply);
                      unary->Answer(outcome.status());
                    });
  return absl::OkStatus();
}

absl::Status StartRollback(UnaryCall* unary, const v1::RollbackHypersolverRequest& request,
                           v1::RollbackHypersolverReply* reply) {
  HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
  HS_RETURN_IF_ERROR(unary->call().Pin(request.model()).status());
  registry->Rollback(request.model(), request.method(), request.generation(),
                     unary->call().patience(),
                     [unary, reply](const absl::StatusOr<PublishOutcome>& outcome) {
                       if (outcome.ok()) {
                         reply->set_generation(outcome->generation);
                         reply->set_previous_generation(outcome->previous_generation);
                       }
                       unary->Answer(outcome.status());
                     });
  return absl::OkStatus();
}

template <class Request, class Reply>
CallStart Changes(Environment* environment, std::string_view name,
                  absl::Status (*start)(UnaryCall*, const Request&, Reply*)) {
  return Unary<Request, Reply>(environment, name, CallKind::kAdmin,
                               [start](UnaryCall* unary, const Request& request, Reply* reply) {
                                 const absl::Status started = start(unary, request, reply);
                                 if (!started.ok()) unary->Answer(started);
                               });
}

absl::Status StartLoad(UnaryCall* unary, const v1::LoadModelRequest& request,
                       v1::LoadModelReply* reply) {
  HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
  registry->LoadModel(request.model(), unary->call().patience(),
                      [unary, reply, model = request.model()](const absl::Status& status) {
                        const auto now = unary->call().environment().registry();
                        if (status.ok() && now != nullptr) {
                          const auto served = now->Pin(model);
                          if (served.ok()) reply->set_base_digest((*served)->model->base_digest());
                        }
                        unary->Answer(status);
                      });
  return absl::OkStatus();
}

absl::Status StartUnload(UnaryCall* unary, const v1::UnloadModelRequest& request,
                         v1::UnloadModelReply*) {
  HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
  registry->UnloadModel(request.model(), unary->call().patience(),
                        [unary](const absl::Status& status) { unary->Answer(status); });
  return absl::OkStatus();
}

}  // namespace

CallService MakeAdminService(Environment* environment) {
  return {.name = v1::Admin::service_full_name(),
          .methods = {
              {"PublishHypersolver", Changes(environment, "PublishHypersolver", StartPublish)},
              {"RollbackHypersolver", Changes(environment, "RollbackHypersolver", StartRollback)},
              {"LoadModel", Changes(environment, "LoadModel", StartLoad)},
              {"UnloadModel", Changes(environment, "UnloadModel", StartUnload)},
              {"WatchModels", [environment](grpc::GenericCallbackServerContext* context) {
                 return new WatchModels(environment, context);
               }}}};
}

}  // namespace hyperserve
