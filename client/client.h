// The calls of a Hyperserve daemon from C++: typed requests and replies, a deadline on every call,
// retries only where they are safe (client/retry.h), request ids. No gRPC type is needed to use it.
//
//   Client client({.address = "127.0.0.1:8500"});
//   v1::ClassifyRequest request;
//   request.mutable_options()->set_model("fashion");
//   *request.mutable_inputs() = ToWire(images);                      // client/wire_tensor.h
//   absl::StatusOr<v1::ClassifyReply> reply = client.Classify(request, Deadline::In(5s));
//
// Failures carry the server's code and words, and the id of the request as the server's log has it.
// Rows that ended badly are no failure of the call: see info().row_status().
//
// Thread-safe: calls may run side by side on one client, sharing one connection. The destructor
// waits for no call; every call must have returned before it.
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

struct ClientOptions {
  std::string address = "127.0.0.1:8500";
  std::string admin_address = "127.0.0.1:8501";
  RetryPolicy retry;
  // Largest reply that is received, bytes. The server sends at most 4 MiB less 64 KiB unless a
  // request's max_reply_bytes raises it.
  int receive_bytes_max = 64 << 20;
};

enum class HealthState { kUnknown, kServing, kNotServing, kServiceUnknown };
std::string_view HealthStateName(HealthState state);  // "SERVING", as in the protocol

class Client {
 public:
  // Connects when the first call is made; never fails.
  explicit Client(ClientOptions options);
  ~Client();

  // Calls that solve: repeated only when the request never left or when the server says when to
  // come back. An empty request_id is filled in.
  absl::StatusOr<v1::ClassifyReply> Classify(v1::ClassifyRequest request, Deadline deadline);
  absl::StatusOr<v1::SampleReply> Sample(v1::SampleRequest request, Deadline deadline);
  absl::StatusOr<v1::LogProbReply> LogProb(v1::LogProbRequest request, Deadline deadline);
  absl::StatusOr<v1::SolveReply> Solve(v1::SolveRequest request, Deadline deadline);

  // Any number of samples: chunks arrive in row order, each row once. A stream that breaks is
  // resumed after its last row, on the same generation; it fails where that is no longer served. A
  // status other than OK from `on_chunk` ends the stream and is returned. The value is the summary
  // of the last part of the stream.
  using OnChunk = std::function<absl::Status(const v1::SampleChunk&)>;
  absl::StatusOr<v1::SolveInfo> SampleStream(v1::SampleStreamRequest request, Deadline deadline,
                                             const OnChunk& on_chunk);

  absl::StatusOr<v1::ListModelsReply> ListModels(Deadline deadline);
  absl::StatusOr<v1::GetModelReply> GetModel(const std::string& model, Deadline deadline);
  absl::StatusOr<v1::GetServerInfoReply> GetServerInfo(Deadline deadline);

  // On the Admin address. Never repeated: the first attempt may have published.
  absl::StatusOr<v1::PublishHypersolverReply> Publish(const v1::PublishHypersolverRequest& request,
                                                      Deadline deadline);
  absl::StatusOr<v1::RollbackHypersolverReply> Rollback(
      const v1::RollbackHypersolverRequest& request, Deadline deadline);

  // `service`: "" for the daemon, "model/<name>" for a model. Check answers kNotFound for one that
  // is not known. Watch calls `on_state` for the first state and each change, until it returns
  // false (OK) or the deadline has passed (kDeadlineExceeded) or the connection ends.
  absl::StatusOr<HealthState> CheckHealth(const std::string& service, Deadline deadline);
  absl::Status WatchHealth(const std::string& service, Deadline deadline,
                           const std::function<bool(HealthState)>& on_state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperserve
