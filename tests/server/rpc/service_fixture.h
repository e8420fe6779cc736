// Both services in this process, on a registry of the tiny models, behind an in-process channel.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "core/engine/device_runtime.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "server/batching/batcher.h"
#include "server/batching/batcher_options.h"
#include "server/calls/limits.h"
#include "server/metrics/metrics.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/services.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {

class TestServer {
 public:
  TestServer(BatcherOptions options, std::unique_ptr<DeviceRuntime> device,
             CallLimits limits = LimitsWith());
  ~TestServer();

  // Calls before this are UNAVAILABLE.
  void Load();

  TemporaryFolder folder;
  Metrics metrics;
  Environment environment;
  const std::unique_ptr<DeviceRuntime> runtime;
  const std::unique_ptr<Batcher> batcher;
  int port = 0;  // the same server on 127.0.0.1, for what needs a network
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Hyperserve::Stub> calls;
  std::unique_ptr<v1::Admin::Stub> admin;

 private:
  const CallService calls_service_ = MakeHyperserveService(&environment);
  const CallService admin_service_ = MakeAdminService(&environment);
  RegisteredCalls registered_;
  std::unique_ptr<grpc::Server> server_;
};

// The first value of a key in a call's trailing metadata; empty: none.
std::string Trailer(const grpc::ClientContext& context, const std::string& key);

}  // namespace hyperserve
