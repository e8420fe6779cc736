// The calls of hyperserve.v1.Admin, on an address of its own: they hand candidates to the registry
// and wait for nothing.
#pragma once

#include <grpcpp/grpcpp.h>

#include "hyperserve/v1/admin.grpc.pb.h"
#include "server/rpc/environment.h"

namespace hyperserve {

class AdminService final : public v1::Admin::CallbackService {
 public:
  // The environment outlives the service.
  explicit AdminService(Environment* environment) : environment_(environment) {}

  grpc::ServerUnaryReactor* PublishHypersolver(grpc::CallbackServerContext* context,
                                               const v1::PublishHypersolverRequest* request,
                                               v1::PublishHypersolverReply* reply) override;
  grpc::ServerUnaryReactor* RollbackHypersolver(grpc::CallbackServerContext* context,
                                                const v1::RollbackHypersolverRequest* request,
                                                v1::RollbackHypersolverReply* reply) override;
  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* context,
                                      const v1::LoadModelRequest* request,
                                      v1::LoadModelReply* reply) override;
  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* context,
                                        const v1::UnloadModelRequest* request,
                                        v1::UnloadModelReply* reply) override;
  grpc::ServerWriteReactor<v1::WatchModelsReply>* WatchModels(
      grpc::CallbackServerContext* context, const v1::WatchModelsRequest* request) override;

 private:
  Environment* const environment_;
};

}  // namespace hyperserve
