#include "server/rpc/hyperserve_service.h"

#include <utility>

#include "core/base/status.h"
#include "server/rpc/call.h"
#include "server/rpc/model_info.h"
#include "server/rpc/prepare.h"
#include "server/rpc/reply.h"
#include "server/rpc/sample_stream.h"

namespace hyperserve {
namespace {

// Pins the model, prepares the work and queues it; `fill(context, served, result)` makes the reply.
template <class Request, class Prepare, class Fill>
grpc::ServerUnaryReactor* StartSolve(Environment* environment, grpc::CallbackServerContext* context,
                                     std::string_view name, const Request& request, Prepare prepare,
                                     Fill fill) {
  auto* const unary = new UnaryCall(environment, context, name, request.options().request_id());
  const auto prepared = [&]() -> absl::StatusOr<Prepared> {
    HS_ASSIGN_OR_RETURN(auto served, unary->call().Pin(request.options().model()));
    HS_ASSIGN_OR_RETURN(Prepared ready, prepare(request, std::move(served), environment->limits));
    unary->call().Bind(ready);
    return ready;
  }();
  if (!prepared.ok()) {
    unary->Answer(prepared.status());
    return unary;
  }
  // Request and reply are gRPC's and live until the answer.
  environment->batcher->Submit(
      prepared->work, [unary, fill, served = prepared->served,
                       reply_context = ContextOf(*prepared, unary->call().id())](
                          absl::StatusOr<WorkResult> result, const WorkTimes& times) mutable {
        const absl::Status status = result.status();
        unary->call().Record(result, times);
        if (status.ok()) {
          reply_context.times = times;
          fill(reply_context, *served, *std::move(result));
        }
        unary->Answer(status);
      });
  return unary;
}

}  // namespace

grpc::ServerUnaryReactor* HyperserveService::Classify(grpc::CallbackServerContext* context,
                                                      const v1::ClassifyRequest* request,
                                                      v1::ClassifyReply* reply) {
  return StartSolve(environment_, context, "Classify", *request, PrepareClassify,
                    [request, reply](const ReplyContext& reply_context, const ServedModel& served,
                                     WorkResult result) {
                      FillClassify(reply_context, request->want(), served.model->spec().labels,
                                   std::move(result), reply);
                    });
}

grpc::ServerUnaryReactor* HyperserveService::Sample(grpc::CallbackServerContext* context,
                                                    const v1::SampleRequest* request,
                                                    v1::SampleReply* reply) {
  return StartSolve(
      environment_, context, "Sample", *request, PrepareSample,
      [reply](const ReplyContext& reply_context, const ServedModel&, WorkResult result) {
        FillSample(reply_context, std::move(result), reply);
      });
}

grpc::ServerWriteReactor<v1::SampleChunk>* HyperserveService::SampleStream(
    grpc::CallbackServerContext* context, const v1::SampleStreamRequest* request) {
  return hyperserve::SampleStream::Start(environment_, context, *request);
}

grpc::ServerUnaryReactor* HyperserveService::LogProb(grpc::CallbackServerContext* context,
                                                     const v1::LogProbRequest* request,
                                                     v1::LogProbReply* reply) {
  return StartSolve(
      environment_, context, "LogProb", *request, PrepareLogProb,
      [reply](const ReplyContext& reply_context, const ServedModel&, WorkResult result) {
        FillLogProb(reply_context, std::move(result), reply);
      });
}

grpc::ServerUnaryReactor* HyperserveService::Solve(grpc::CallbackServerContext* context,
                                                   const v1::SolveRequest* request,
                                                   v1::SolveReply* reply) {
  return StartSolve(
      environment_, context, "Solve", *request, PrepareSolve,
      [request, reply](const ReplyContext& reply_context, const ServedModel&, WorkResult result) {
        FillSolve(reply_context, *request, std::move(result), reply);
      });
}

grpc::ServerUnaryReactor* HyperserveService::ListModels(grpc::CallbackServerContext* context,
                                                        const v1::ListModelsRequest*,
                                                        v1::ListModelsReply* reply) {
  auto* const unary = new UnaryCall(environment_, context, "ListModels", "");
  const auto registry = unary->call().Admit();
  if (registry.ok()) {
    for (const auto& served : (*registry)->List()) FillSummary(*served, reply->add_models());
  }
  unary->Answer(registry.status());
  return unary;
}

grpc::ServerUnaryReactor* HyperserveService::GetModel(grpc::CallbackServerContext* context,
                                                      const v1::GetModelRequest* request,
                                                      v1::GetModelReply* reply) {
  auto* const unary = new UnaryCall(environment_, context, "GetModel", "");
  const auto served = unary->call().Pin(request->model());
  if (served.ok()) FillModel(**served, reply);
  unary->Answer(served.status());
  return unary;
}

grpc::ServerUnaryReactor* HyperserveService::GetServerInfo(grpc::CallbackServerContext* context,
                                                           const v1::GetServerInfoRequest*,
                                                           v1::GetServerInfoReply* reply) {
  auto* const unary = new UnaryCall(environment_, context, "GetServerInfo", "");
  const std::chrono::duration<double> uptime = environment_->clock->Now() - environment_->started;
  FillServerInfo(environment_->facts, uptime.count(), reply);
  unary->Answer(absl::OkStatus());
  return unary;
}

}  // namespace hyperserve
