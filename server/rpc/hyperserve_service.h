// The calls of hyperserve.v1.Hyperserve. Handlers validate, pin and enqueue; answers come from the
// batcher's solver threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "server/rpc/environment.h"

namespace hyperserve {

class HyperserveService final : public v1::Hyperserve::CallbackService {
 public:
  // The environment outlives the service.
  explicit HyperserveService(Environment* environment) : environment_(environment) {}

  grpc::ServerUnaryReactor* Classify(grpc::CallbackServerContext* context,
                                     const v1::ClassifyRequest* request,
                                     v1::ClassifyReply* reply) override;
  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context,
                                   const v1::SampleRequest* request,
                                   v1::SampleReply* reply) override;
  grpc::ServerWriteReactor<v1::SampleChunk>* SampleStream(
      grpc::CallbackServerContext* context, const v1::SampleStreamRequest* request) override;
  grpc::ServerUnaryReactor* LogProb(grpc::CallbackServerContext* context,
                                    const v1::LogProbRequest* request,
                                    v1::LogProbReply* reply) override;
  grpc::ServerUnaryReactor* Solve(grpc::CallbackServerContext* context,
                                  const v1::SolveRequest* request, v1::SolveReply* reply) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsReply* reply) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelReply* reply) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoReply* reply) override;

 private:
  Environment* const environment_;
};

}  // namespace hyperserve
