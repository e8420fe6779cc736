// One call from arrival to answer. At the start it gets an id, a deadline and a cancellation flag.
// At the end it writes its metrics and its log line, once, and sets the trailing metadata and the
// code.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "server/batching/work.h"
#include "server/calls/prepare.h"
#include "server/clock/clock.h"
#include "server/clock/patience.h"
#include "server/registry/registry.h"
#include "server/registry/served_model.h"
#include "server/rpc/environment.h"

namespace hyperserve {

// Decides the deadline of a call that brings none, which calls count in the ledger (kAdmin does
// not), and which durations are observed (kUnary alone).
enum class CallKind { kUnary, kStream, kAdmin };

// Belongs to the handler until its work is submitted, then to the thread that answers. Cancel,
// cancelled and the functions of patience() are thread-safe.
class Call {
 public:
  // The call makes an id for itself. The deadline is the client's, at most deadline_max. A call
  // without one gets deadline_default if it is unary, else deadline_max. `environment` and
  // `context` must outlive the call.
  Call(Environment* environment, grpc::CallbackServerContext* context, std::string_view name,
       CallKind kind = CallKind::kUnary);
  // Only then does the call stop counting as in flight, and as solving if it was bound.
  ~Call();

  // Takes the id that the request brings, unless it is empty or malformed; in the latter case Admit
  // fails. Call it before Admit.
  void TakeId(const std::string& asked);
  // The call would fail again however often it is tried: RESOURCE_EXHAUSTED goes without a
  // pushback.
  void ForbidRetry() { retry_helps_ = false; }

  // Ends in the log, in metadata and, of solving calls, in the reply.
  const std::string& id() const { return id_; }
  // On the environment's clock; it may lie in the past.
  Clock::TimePoint deadline() const { return deadline_; }
  // The call's deadline and cancellation. It may outlive the call.
  Patience patience() const;
  // Outlives every call.
  Environment& environment() const { return *environment_; }

  // kResourceExhausted: the client has not read earlier replies, so it gets no more.
  absl::Status CheckUnread() const;
  // The registry. kUnavailable: the daemon is loading, which goes with a pushback, or draining.
  // kInvalidArgument: the request's id is malformed. Else fails as CheckUnread does.
  absl::StatusOr<std::shared_ptr<Registry>> Admit();
  // Admits the call, pins the model and names it in the call's metrics. Fails as Admit does, with
  // kNotFound where there is no such model, and with kResourceExhausted where the process has no
  // memory to spare.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(const std::string& model);
  // Gives the work the call's deadline, cancellation and client, and names the plan in the call's
  // metrics. Call it once, before the work is submitted. From then on a shutdown waits for the
  // call.
  void Bind(Prepared& prepared);

  // Never taken back. Wakes nobody: whoever works asks cancelled() between its steps.
  void Cancel() { cancelled_->store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_->load(std::memory_order_relaxed); }

  // Adds the times of the work and the solved rows to the metrics. Call it once for the work of a
  // unary call, and once for each chunk of a stream.
  void Record(const absl::StatusOr<WorkResult>& result, const WorkTimes& times);
  // Writes metrics and log line, sets the trailing metadata, and returns the status for gRPC. Call
  // it once, last.
  grpc::Status End(const absl::Status& status);

 private:
  void CountDuration(double seconds) const;

  Environment* const environment_;
  grpc::CallbackServerContext* const context_;
  const std::string name_;
  const CallKind kind_;
  const Clock::TimePoint arrival_;
  const Clock::TimePoint deadline_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  // Set before the work is submitted.
  std::string id_;
  absl::Status id_problem_;
  std::string model_label_ = "other";
  std::string plan_label_ = "none";    // in the log
  std::string counted_plan_ = "none";  // in the metrics
  bool bound_ = false;
  bool came_too_early_ = false;  // the daemon was loading
  // Touched only by the thread that answers.
  int64_t rows_ = 0;  // that were solved
  std::chrono::milliseconds retry_after_{0};
  bool retry_helps_ = true;
};

// The client's address without the port, in gRPC's spelling.
std::string PeerOf(const grpc::ServerContextBase& context);

// The status as gRPC sends it. A code outside the table of docs/ARCHITECTURE.md becomes INTERNAL. A
// message of more than 2,048 bytes is cut, since it travels in a header, and is made valid UTF-8.
// Pure.
grpc::Status ToGrpc(const absl::Status& status);

// Who sends a call: the address in gRPC's spelling of a peer ("ipv4:10.0.0.1:4711"), without its
// port, and the value of the header kClientHeader, cut to 64 bytes. Pure.
ClientKey ClientOf(std::string_view peer, std::string_view header);
inline constexpr std::string_view kClientHeader = "hyperserve-client";

// kInvalidArgument: the id is longer than 128 characters or not printable ASCII. Pure.
absl::Status CheckRequestId(const std::string& id);

}  // namespace hyperserve
