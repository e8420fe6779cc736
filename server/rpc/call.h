// One call from arrival to answer: its id, deadline and cancellation, the pinned model; and at the
// end, once, its metrics, its log line, its trailing metadata and its code.
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

enum class CallKind { kUnary, kStream, kAdmin };

class Call {
 public:
  // `asked_id`: the request's own id; empty: one is made. `environment` and `context` outlive the
  // call.
  Call(Environment* environment, grpc::CallbackServerContext* context, std::string_view name,
       const std::string& asked_id, CallKind kind = CallKind::kUnary);
  ~Call();

  const std::string& id() const { return id_; }
  Clock::TimePoint deadline() const { return deadline_; }
  // The client's, as long as somebody wants to know.
  Patience patience() const;
  Environment& environment() const { return *environment_; }

  // The registry; kUnavailable while loading or draining, kInvalidArgument for a malformed id.
  absl::StatusOr<std::shared_ptr<Registry>> Admit() const;
  // Admits, pins the model and names it in metrics.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Pin(const std::string& model);
  // Names the plan in metrics, and gives the work the call's deadline and cancellation. Once; from
  // then on a shutdown waits for the call.
  void Bind(Prepared& prepared);

  void Cancel() { cancelled_->store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_->load(std::memory_order_relaxed); }

  // Counts the time that its work took, and what was solved. For a stream once a chunk.
  void Record(const absl::StatusOr<WorkResult>& result, const WorkTimes& times);
  // The last act: metrics, log line, trailing metadata.
  grpc::Status End(const absl::Status& status);

 private:
  Environment* const environment_;
  grpc::CallbackServerContext* const context_;
  const std::string name_;
  const std::string id_;
  const Clock::TimePoint arrival_;
  const Clock::TimePoint deadline_;
  const absl::Status id_problem_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  // Set before the work is submitted.
  std::string model_label_ = "other";
  std::string plan_label_ = "none";
  bool bound_ = false;
  // Touched by one thread at a time: the one that answers.
  int64_t rows_ = 0;
};

// A unary call that is answered by Answer(), from any thread, exactly once. Deletes itself.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(Environment* environment, grpc::CallbackServerContext* context, std::string_view name,
            const std::string& asked_id, CallKind kind = CallKind::kUnary)
      : call_(environment, context, name, asked_id, kind) {}
  Call& call() { return call_; }
  void Answer(const absl::Status& status) { Finish(call_.End(status)); }

 private:
  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { delete this; }

  Call call_;
};

// The wire's code and words; codes outside the table are our fault (INTERNAL). Long words are cut:
// they travel in a header.
grpc::Status ToGrpc(const absl::Status& status);

// kInvalidArgument where an id is longer than 128 characters or not printable ASCII.
absl::Status CheckRequestId(const std::string& id);

}  // namespace hyperserve
