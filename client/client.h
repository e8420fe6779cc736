// The C++ client of a Hyperserve daemon: typed requests and replies, a deadline on every call,
// retries only where they are safe (client/retry.h), request ids. Its users need no type of gRPC.
//
//   Client client({.address = "127.0.0.1:8500"});
//   v1::ClassifyRequest request;
//   request.mutable_options()->set_model("fashion");
//   *request.mutable_inputs() = ToWire(images);                      // client/wire_tensor.h
//   absl::StatusOr<v1::ClassifyReply> reply = client.Classify(request, Deadline::In(5s));
//
// A failure has the server's code and message, and the request id that stands in the server's log.
// kUnavailable: there is no connection, or it broke; kDeadlineExceeded: the deadline passed. A row
// that failed does not fail the call: see info().row_status().
//
// Thread-safe: several threads may call one client, and share its connection. Each call blocks its
// thread until the reply, the deadline or a failure. Every call must have returned before the
// destructor runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/deadline.h"
#include "client/retry.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

// Copied by the client. Addresses are HOST:PORT; a wrong one fails the first call with
// kUnavailable, not the constructor.
struct ClientOptions {
  std::string address = "127.0.0.1:8500";
  std::string admin_address = "127.0.0.1:8501";
  RetryPolicy retry;
  // The largest reply that is received, in bytes. The server sends at most 4 MiB less 64 KiB,
  // unless the request raises max_reply_bytes.
  int receive_bytes_max = 64 << 20;
};

// kServiceUnknown comes from WatchHealth alone: the service may appear later.
enum class HealthState { kUnknown, kServing, kNotServing, kServiceUnknown };
std::string_view HealthStateName(HealthState state);  // "SERVING", as in grpc.health.v1

// Starts no thread of its own, and keeps no request after its call.
class Client {
 public:
  // Never fails: the first call connects.
  explicit Client(ClientOptions options);
  ~Client();

  // Calls that solve. Repeated only where the request was never sent, or where the server says when
  // to try again. An empty request_id is filled in.
  absl::StatusOr<v1::ClassifyReply> Classify(v1::ClassifyRequest request, Deadline deadline);
  absl::StatusOr<v1::SampleReply> Sample(v1::SampleRequest request, Deadline deadline);
  absl::StatusOr<v1::LogProbReply> LogProb(v1::LogProbRequest request, Deadline deadline);
  absl::StatusOr<v1::SolveReply> Solve(v1::SolveRequest request, Deadline deadline);
  absl::StatusOr<v1::SolveVjpReply> SolveVjp(v1::SolveVjpRequest request, Deadline deadline);
  absl::StatusOr<v1::SolveJvpReply> SolveJvp(v1::SolveJvpRequest request, Deadline deadline);
  absl::StatusOr<v1::LogProbGradientReply> LogProbGradient(v1::LogProbGradientRequest request,
                                                           Deadline deadline);

  // Streams any number of samples. `on_chunk` runs on the calling thread; chunks come in row order,
  // each row once. A broken stream is resumed after its last row on the same generation, and fails
  // where that generation is no longer served. A status of `on_chunk` other than OK ends the stream
  // and is returned. Returns the summary of the stream, after a resumption that of its last part.
  using OnChunk = std::function<absl::Status(const v1::SampleChunk&)>;
  absl::StatusOr<v1::SolveInfo> SampleStream(v1::SampleStreamRequest request, Deadline deadline,
                                             const OnChunk& on_chunk);

  // Calls that change nothing. Repeated as those that solve.
  absl::StatusOr<v1::ListModelsReply> ListModels(Deadline deadline);
  absl::StatusOr<v1::GetModelReply> GetModel(const std::string& model, Deadline deadline);
  absl::StatusOr<v1::GetServerInfoReply> GetServerInfo(Deadline deadline);

  // Calls on the Admin address. Never repeated, since the first attempt may have published.
  absl::StatusOr<v1::PublishHypersolverReply> Publish(const v1::PublishHypersolverRequest& request,
                                                      Deadline deadline);
  absl::StatusOr<v1::RollbackHypersolverReply> Rollback(
      const v1::RollbackHypersolverRequest& request, Deadline deadline);
  absl::StatusOr<v1::LoadModelReply> LoadModel(const v1::LoadModelRequest& request,
                                               Deadline deadline);
  absl::StatusOr<v1::UnloadModelReply> UnloadModel(const v1::UnloadModelRequest& request,
                                                   Deadline deadline);

  // Also on the Admin address. First what is served, then each change, until `on_event` returns
  // false (then OK) or the deadline comes (then kDeadlineExceeded). `on_event` runs on the calling
  // thread; what it does delays the next event. A broken connection is not mended (kUnavailable).
  // Where the server dropped the watch since its events were not read, it begins anew, with what is
  // served.
  absl::Status WatchModels(Deadline deadline,
                           const std::function<bool(const v1::WatchModelsReply&)>& on_event);

  // `service` is "" for the daemon or "model/<name>" for a model. CheckHealth returns kNotFound for
  // an unknown one. WatchHealth calls `on_state` on the calling thread with the first state and
  // with each change. It returns OK when `on_state` returns false, and kDeadlineExceeded at the
  // deadline.
  absl::StatusOr<HealthState> CheckHealth(const std::string& service, Deadline deadline);
  absl::Status WatchHealth(const std::string& service, Deadline deadline,
                           const std::function<bool(HealthState)>& on_state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperserve
