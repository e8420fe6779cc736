#include "server/rpc/admin_service.h"

#include <limits>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/model/repository/generation_files.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "server/registry/gate_decision.h"
#include "server/rpc/call.h"

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

absl::Status NotBuilt(std::string_view call, std::string_view way_out) {
  return absl::UnimplementedError(absl::StrCat(Absl(call), " is not built yet; ", Absl(way_out)));
}

// A stream that ends at once with the reason why it does not start. Deletes itself.
class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchModelsReply> {
 public:
  RefusedWatch(Environment* environment, grpc::CallbackServerContext* context)
      : call_(environment, context, "WatchModels", "") {
    Finish(call_.End(NotBuilt("WatchModels", "watch health `model/<name>`, or poll GetModel")));
  }

 private:
  void OnDone() override { delete this; }
  Call call_;
};

void FillGate(const GateMeasurement& measured, v1::GateResult* result) {
  result->set_steps(measured.steps);
  result->set_candidate_error(measured.candidate_error);
  result->set_active_error(
      measured.active_error.value_or(std::numeric_limits<double>::quiet_NaN()));
  result->set_base_error(measured.base_error);
}

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(Environment* environment) : environment_(environment) {}

  grpc::ServerUnaryReactor* PublishHypersolver(grpc::CallbackServerContext* context,
                                               const v1::PublishHypersolverRequest* request,
                                               v1::PublishHypersolverReply* reply) override {
    auto* const unary =
        new UnaryCall(environment_, context, "PublishHypersolver", "", CallKind::kAdmin);
    const auto started = [&]() -> absl::Status {
      HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
      HS_RETURN_IF_ERROR(unary->call().Pin(request->model()).status());
      HS_ASSIGN_OR_RETURN(GenerationFiles files, FilesFromWire(*request));
      std::optional<int64_t> parent;
      if (request->has_parent_generation()) parent = request->parent_generation();
      registry->Publish(request->model(), request->method(), std::move(files), parent,
                        unary->call().patience(),
                        [unary, reply](const absl::StatusOr<PublishOutcome>& outcome) {
                          if (outcome.ok()) {
                            reply->set_generation(outcome->generation);
                            reply->set_previous_generation(outcome->previous_generation);
                            reply->set_seconds(outcome->seconds);
                            for (const GateMeasurement& measured : outcome->gate) {
                              FillGate(measured, reply->add_gate());
                            }
                          }
                          unary->Answer(outcome.status());
                        });
      return absl::OkStatus();
    }();
    if (!started.ok()) unary->Answer(started);
    return unary;
  }

  grpc::ServerUnaryReactor* RollbackHypersolver(grpc::CallbackServerContext* context,
                                                const v1::RollbackHypersolverRequest* request,
                                                v1::RollbackHypersolverReply* reply) override {
    auto* const unary =
        new UnaryCall(environment_, context, "RollbackHypersolver", "", CallKind::kAdmin);
    const auto started = [&]() -> absl::Status {
      HS_ASSIGN_OR_RETURN(const auto registry, unary->call().Admit());
      HS_RETURN_IF_ERROR(unary->call().Pin(request->model()).status());
      registry->Rollback(request->model(), request->method(), request->generation(),
                         unary->call().patience(),
                         [unary, reply](const absl::StatusOr<PublishOutcome>& outcome) {
                           if (outcome.ok()) {
                             reply->set_generation(outcome->generation);
                             reply->set_previous_generation(outcome->previous_generation);
                           }
                           unary->Answer(outcome.status());
                         });
      return absl::OkStatus();
    }();
    if (!started.ok()) unary->Answer(started);
    return unary;
  }

  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* context,
                                      const v1::LoadModelRequest*, v1::LoadModelReply*) override {
    auto* const unary = new UnaryCall(environment_, context, "LoadModel", "");
    unary->Answer(NotBuilt("LoadModel", "put the folder into --models and start the daemon again"));
    return unary;
  }

  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* context,
                                        const v1::UnloadModelRequest*,
                                        v1::UnloadModelReply*) override {
    auto* const unary = new UnaryCall(environment_, context, "UnloadModel", "");
    unary->Answer(
        NotBuilt("UnloadModel", "take the folder out of --models and start the daemon again"));
    return unary;
  }

  grpc::ServerWriteReactor<v1::WatchModelsReply>* WatchModels(
      grpc::CallbackServerContext* context, const v1::WatchModelsRequest*) override {
    return new RefusedWatch(environment_, context);
  }

 private:
  Environment* const environment_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(Environment* environment) {
  return std::make_unique<AdminService>(environment);
}

}  // namespace hyperserve
