#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/connection.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "hyperserve/v1/admin.grpc.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"

namespace hyperserve {
namespace {

namespace health = grpc::health::v1;

constexpr RetryPolicy kNeverAgain{.attempts_max = 1};

HealthState FromWire(health::HealthCheckResponse::ServingStatus status) {
  switch (status) {
    case health::HealthCheckResponse::SERVING:
      return HealthState::kServing;
    case health::HealthCheckResponse::NOT_SERVING:
      return HealthState::kNotServing;
    case health::HealthCheckResponse::SERVICE_UNKNOWN:
      return HealthState::kServiceUnknown;
    default:
      return HealthState::kUnknown;
  }
}

// Reads a stream until `goes_on` says no, which is a good end, or the stream ends.
template <class Message, class Stream, class GoesOn>
Connection::Attempt Follow(grpc::ClientContext& context, Stream& stream, const GoesOn& goes_on) {
  Message message;
  while (stream.Read(&message)) {
    if (goes_on(message)) continue;
    context.TryCancel();
    stream.Finish();
    return {};
  }
  return {.status = stream.Finish()};
}

// Of what each row of a stream brings, the rows that are left. One for all rows stays.
void KeepLastRows(int64_t rows, v1::Tensor& brought) {
  const int64_t there = brought.shape().empty() ? 0 : brought.shape(0);
  if (there <= 1 || rows <= 0 || there <= rows) return;
  const auto row_bytes = static_cast<int64_t>(brought.data().size()) / there;
  brought.mutable_data()->erase(0, static_cast<size_t>(row_bytes * (there - rows)));
  brought.set_shape(0, rows);
}

std::string RandomPrefix() {
  std::random_device device;
  return absl::StrCat(absl::Hex(device(), absl::kZeroPad8));
}

// Where a request that solves has its options.
template <class Request>
v1::SolveOptions& OptionsOf(Request& request) {
  if constexpr (requires { request.mutable_solve(); }) {
    return *request.mutable_solve()->mutable_options();
  } else {
    return *request.mutable_options();
  }
}

}  // namespace

std::string_view HealthStateName(HealthState state) {
  static constexpr std::array<std::string_view, 4> kNames = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                                             "SERVICE_UNKNOWN"};
  return kNames[static_cast<size_t>(state)];
}

class Client::Impl {
 public:
  explicit Impl(ClientOptions options)
      : options_(std::move(options)),
        calls_(options_.address, options_.receive_bytes_max),
        admin_(options_.admin_address, options_.receive_bytes_max),
        stub_(v1::Hyperserve::NewStub(calls_.channel())),
        admin_stub_(v1::Admin::NewStub(admin_.channel())),
        health_stub_(health::Health::NewStub(calls_.channel())),
        id_prefix_(RandomPrefix()) {}

  // One unary call: `method` is the stub's blocking member function.
  template <class Reply, class Request, class Stub>
  absl::StatusOr<Reply> Unary(const Connection& connection, const RetryPolicy& policy, Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Reply*),
                              const Request& request, const std::string& request_id,
                              Deadline deadline) {
    Reply reply;
    const absl::Status status =
        connection.Call(policy, deadline, request_id, [&](grpc::ClientContext& context) {
          return Connection::Attempt{.status = (stub.*method)(&context, request, &reply)};
        });
    if (!status.ok()) return status;
    return reply;
  }

  // The same for calls that solve; their requests carry an id.
  template <class Reply, class Request>
  absl::StatusOr<Reply> Solving(grpc::Status (v1::Hyperserve::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Reply*),
                                Request& request, Deadline deadline) {
    v1::SolveOptions& options = OptionsOf(request);
    NameRequest(options);
    return Unary(calls_, options_.retry, *stub_, method, request, options.request_id(), deadline);
  }

  void NameRequest(v1::SolveOptions& options) {
    if (options.request_id().empty()) {
      options.set_request_id(absl::StrCat(id_prefix_, "-", ++requests_));
    }
  }

  const ClientOptions options_;
  const Connection calls_;
  const Connection admin_;
  const std::unique_ptr<v1::Hyperserve::Stub> stub_;
  const std::unique_ptr<v1::Admin::Stub> admin_stub_;
  const std::unique_ptr<health::Health::Stub> health_stub_;
  const std::string id_prefix_;
  std::atomic<int64_t> requests_ = 0;
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

absl::StatusOr<v1::ClassifyReply> Client::Classify(v1::ClassifyRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::Classify, request, deadline);
}

absl::StatusOr<v1::SampleReply> Client::Sample(v1::SampleRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::Sample, request, deadline);
}

absl::StatusOr<v1::LogProbReply> Client::LogProb(v1::LogProbRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::LogProb, request, deadline);
}

absl::StatusOr<v1::SolveReply> Client::Solve(v1::SolveRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::Solve, request, deadline);
}

absl::StatusOr<v1::SolveVjpReply> Client::SolveVjp(v1::SolveVjpRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::SolveVjp, request, deadline);
}

absl::StatusOr<v1::SolveJvpReply> Client::SolveJvp(v1::SolveJvpRequest request, Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::SolveJvp, request, deadline);
}

absl::StatusOr<v1::LogProbGradientReply> Client::LogProbGradient(v1::LogProbGradientRequest request,
                                                                 Deadline deadline) {
  return impl_->Solving(&v1::Hyperserve::Stub::LogProbGradient, request, deadline);
}

absl::StatusOr<v1::SolveInfo> Client::SampleStream(v1::SampleStreamRequest request,
                                                   Deadline deadline, const OnChunk& on_chunk) {
  v1::SampleRequest& left = *request.mutable_sample();  // the rows that have not arrived
  impl_->NameRequest(*left.mutable_options());
  const std::string request_id = left.options().request_id();
  v1::SolveInfo summary;
  absl::Status refused;  // by the caller, or since the stream sent wrong rows
  const auto attempt = [&](grpc::ClientContext& context) -> Connection::Attempt {
    if (left.options().has_condition()) {
      KeepLastRows(left.rows(), *left.mutable_options()->mutable_condition());
    }
    if (left.options().has_guidance()) {
      KeepLastRows(left.rows(), *left.mutable_options()->mutable_guidance());
    }
    const auto stream = impl_->stub_->SampleStream(&context, request);
    Connection::Attempt made;
    v1::SampleChunk chunk;
    while (refused.ok() && stream->Read(&chunk)) {
      if (chunk.first_row() != left.first_row() || chunk.rows() < 0 || chunk.rows() > left.rows()) {
        refused = absl::InternalError(absl::StrCat("the stream sent rows from ", chunk.first_row(),
                                                   " where ", left.first_row(), " was next"));
        break;
      }
      refused = on_chunk(chunk);
      left.set_first_row(left.first_row() + chunk.rows());
      left.set_rows(left.rows() - chunk.rows());
      left.mutable_options()->set_generation(chunk.generation());
      made.progressed = made.progressed || chunk.rows() > 0;
      if (chunk.has_summary()) summary = chunk.summary();
    }
    if (!refused.ok()) context.TryCancel();
    made.status = stream->Finish();
    made.resumable = left.rows() > 0;
    if (!refused.ok()) made = {.status = grpc::Status(grpc::StatusCode::CANCELLED, "")};
    return made;
  };
  const absl::Status status =
      impl_->calls_.Call(impl_->options_.retry, deadline, request_id, attempt);
  if (!refused.ok()) return refused;
  if (!status.ok()) return status;
  if (left.rows() != 0) {
    return absl::InternalError(
        absl::StrCat("the stream ended ", left.rows(), " rows early (request ", request_id, ")"));
  }
  return summary;
}

absl::StatusOr<v1::ListModelsReply> Client::ListModels(Deadline deadline) {
  return impl_->Unary(impl_->calls_, impl_->options_.retry, *impl_->stub_,
                      &v1::Hyperserve::Stub::ListModels, v1::ListModelsRequest(), "", deadline);
}

absl::StatusOr<v1::GetModelReply> Client::GetModel(const std::string& model, Deadline deadline) {
  v1::GetModelRequest request;
  request.set_model(model);
  return impl_->Unary(impl_->calls_, impl_->options_.retry, *impl_->stub_,
                      &v1::Hyperserve::Stub::GetModel, request, "", deadline);
}

absl::StatusOr<v1::GetServerInfoReply> Client::GetServerInfo(Deadline deadline) {
  return impl_->Unary(impl_->calls_, impl_->options_.retry, *impl_->stub_,
                      &v1::Hyperserve::Stub::GetServerInfo, v1::GetServerInfoRequest(), "",
                      deadline);
}

absl::StatusOr<v1::PublishHypersolverReply> Client::Publish(
    const v1::PublishHypersolverRequest& request, Deadline deadline) {
  return impl_->Unary(impl_->admin_, kNeverAgain, *impl_->admin_stub_,
                      &v1::Admin::Stub::PublishHypersolver, request, "", deadline);
}

absl::StatusOr<v1::LoadModelReply> Client::LoadModel(const v1::LoadModelRequest& request,
                                                     Deadline deadline) {
  return impl_->Unary(impl_->admin_, kNeverAgain, *impl_->admin_stub_, &v1::Admin::Stub::LoadModel,
                      request, "", deadline);
}

absl::StatusOr<v1::UnloadModelReply> Client::UnloadModel(const v1::UnloadModelRequest& request,
                                                         Deadline deadline) {
  return impl_->Unary(impl_->admin_, kNeverAgain, *impl_->admin_stub_,
                      &v1::Admin::Stub::UnloadModel, request, "", deadline);
}

absl::StatusOr<v1::RollbackHypersolverReply> Client::Rollback(
    const v1::RollbackHypersolverRequest& request, Deadline deadline) {
  return impl_->Unary(impl_->admin_, kNeverAgain, *impl_->admin_stub_,
                      &v1::Admin::Stub::RollbackHypersolver, request, "", deadline);
}

absl::StatusOr<HealthState> Client::CheckHealth(const std::string& service, Deadline deadline) {
  health::HealthCheckRequest request;
  request.set_service(service);
  const auto reply = impl_->Unary(impl_->calls_, impl_->options_.retry, *impl_->health_stub_,
                                  &health::Health::Stub::Check, request, "", deadline);
  if (!reply.ok()) return reply.status();
  return FromWire(reply->status());
}

absl::Status Client::WatchHealth(const std::string& service, Deadline deadline,
                                 const std::function<bool(HealthState)>& on_state) {
  health::HealthCheckRequest request;
  request.set_service(service);
  const auto attempt = [&](grpc::ClientContext& context) {
    return Follow<health::HealthCheckResponse>(
        context, *impl_->health_stub_->Watch(&context, request),
        [&](const auto& state) { return on_state(FromWire(state.status())); });
  };
  return impl_->calls_.Call(impl_->options_.retry, deadline, "", attempt);
}

absl::Status Client::WatchModels(Deadline deadline,
                                 const std::function<bool(const v1::WatchModelsReply&)>& on_event) {
  const v1::WatchModelsRequest request;
  const auto attempt = [&](grpc::ClientContext& context) {
    return Follow<v1::WatchModelsReply>(
        context, *impl_->admin_stub_->WatchModels(&context, request), on_event);
  };
  return impl_->admin_.Call(impl_->options_.retry, deadline, "", attempt);
}

}  // namespace hyperserve
