#include "tests/server/rpc/service_fixture.h"

#include <gtest/gtest.h>

#include "core/engine/device_runtime.h"
#include "server/batching/batcher.h"
#include "server/batching/batcher_options.h"
#include "server/calls/limits.h"
#include "server/clock/clock.h"
#include "server/registry/registry.h"

namespace hyperserve {

TestServer::TestServer(BatcherOptions options, std::unique_ptr<DeviceRuntime> device,
                       CallLimits limits)
    : runtime(std::move(device)),
      batcher(std::make_unique<Batcher>(options, std::vector{runtime.get()}, &Clock::Real())) {
  environment.limits = limits;
  environment.metrics = &metrics;
  environment.clock = &Clock::Real();
  environment.started = Clock::Real().Now();
  environment.facts = {.version = "1.2.3",
                       .commit = "abc",
                       .devices = {{"cpu", "a processor", 1024}},
                       .engines = {"readable"},
                       .limits = {{"steps_max", "10", "steps", "a reason"}}};
  environment.batcher = batcher.get();
  grpc::ServerBuilder builder;
  registered_ = Register({&calls_service_, &admin_service_}, &environment, builder);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  server_ = builder.BuildAndStart();
  channel = server_->InProcessChannel({});
  calls = v1::Hyperserve::NewStub(channel);
  admin = v1::Admin::NewStub(channel);
}

TestServer::~TestServer() {
  batcher->Drain(std::chrono::milliseconds(0));
  environment.set_registry(nullptr);
  server_->Shutdown();
}

void TestServer::Load() {
  EXPECT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());
  auto registry =
      Registry::Open({.repository = folder.path(),
                      .gate_margin = 0.02,
                      .runtime = runtime.get(),
                      .publish_queue_limit = 8,
                      .examination_macs_max = 1e18,
                      .examination_seconds_max = 1e6},
                     [this](const Registry::Event& event) { environment.events.Tell(event); });
  ASSERT_TRUE(registry.ok()) << registry.status();
  environment.models_folder = folder.path();
  environment.set_registry(*std::move(registry));
}

std::string Trailer(const grpc::ClientContext& context, const std::string& key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace hyperserve
