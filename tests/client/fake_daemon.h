// A daemon in this process. A test sets what its calls do; it counts and keeps the requests. Calls
// that a test did not set answer UNIMPLEMENTED.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/client.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"

namespace hyperserve {

class FakeDaemon final : public v1::Hyperserve::Service, public v1::Admin::Service {
 public:
  using ChunkWriter = grpc::ServerWriter<v1::SampleChunk>;

  // On a port of its own, or on `port`.
  explicit FakeDaemon(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(static_cast<v1::Hyperserve::Service*>(this));
    builder.RegisterService(static_cast<v1::Admin::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~FakeDaemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  int port() const { return port_; }
  ClientOptions options() const {
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    return {.address = address, .admin_address = address};
  }

  // The test sets these before the first call. `attempt` counts from 1.
  std::function<grpc::Status(int attempt, grpc::ServerContext&, v1::ClassifyReply&)> on_classify;
  std::function<grpc::Status(int attempt, grpc::ServerContext&, const v1::SampleStreamRequest&,
                             ChunkWriter&)>
      on_stream;
  std::function<grpc::Status(int attempt, grpc::ServerContext&)> on_publish;

  std::vector<v1::ClassifyRequest> classified() const {
    const std::lock_guard lock(mutex_);
    return classified_;
  }
  std::vector<v1::SampleStreamRequest> streamed() const {
    const std::lock_guard lock(mutex_);
    return streamed_;
  }
  int published() const {
    const std::lock_guard lock(mutex_);
    return published_;
  }

 private:
  grpc::Status Classify(grpc::ServerContext* context, const v1::ClassifyRequest* request,
                        v1::ClassifyReply* reply) override {
    const int attempt = Keep(*request, classified_);
    return on_classify ? on_classify(attempt, *context, *reply) : Unset();
  }
  grpc::Status SampleStream(grpc::ServerContext* context, const v1::SampleStreamRequest* request,
                            ChunkWriter* writer) override {
    const int attempt = Keep(*request, streamed_);
    return on_stream ? on_stream(attempt, *context, *request, *writer) : Unset();
  }
  grpc::Status PublishHypersolver(grpc::ServerContext* context,
                                  const v1::PublishHypersolverRequest*,
                                  v1::PublishHypersolverReply*) override {
    int attempt = 0;
    {
      const std::lock_guard lock(mutex_);
      attempt = ++published_;
    }
    return on_publish ? on_publish(attempt, *context) : Unset();
  }

  template <class Request>
  int Keep(const Request& request, std::vector<Request>& kept) {
    const std::lock_guard lock(mutex_);
    kept.push_back(request);
    return static_cast<int>(kept.size());
  }
  static grpc::Status Unset() { return {grpc::StatusCode::UNIMPLEMENTED, "not set by the test"}; }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mutex_;
  std::vector<v1::ClassifyRequest> classified_;    // guarded by mutex_
  std::vector<v1::SampleStreamRequest> streamed_;  // guarded by mutex_
  int published_ = 0;                              // guarded by mutex_
};

}  // namespace hyperserve
