#include <utility>

#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "server/calls/classify.h"
#include "server/calls/flow.h"
#include "server/calls/solve.h"
#include "server/rpc/call.h"
#include "server/rpc/call_service.h"
#include "server/rpc/environment.h"
#include "server/rpc/sample_stream.h"
#include "server/rpc/services.h"
#include "server/rpc/solve_call.h"
#include "server/rpc/unary_call.h"
#include "server/rpc/wire.h"

namespace hyperserve {
namespace {

ClassifyAsk FromWire(const v1::ClassifyRequest& request) {
  const v1::ClassifyWant& want = request.want();
  return {.terms = TermsFromWire(request.options()),
          .inputs = RowsFromWire(request.inputs()),
          .want = {.labels = want.labels(),
                   .top_k = want.top_k(),
                   .probabilities = want.probabilities(),
                   .logits = want.logits(),
                   .state = want.state()}};
}

SampleAsk FromWire(const v1::SampleRequest& request) {
  return {.terms = TermsFromWire(request.options()),
          .rows = request.rows(),
          .seed = request.seed(),
          .first_row = request.first_row(),
          .log_density = request.log_density()};
}

StreamAsk FromWire(const v1::SampleStreamRequest& request) {
  return {.sample = FromWire(request.sample()), .chunk_rows = request.chunk_rows()};
}

LogProbAsk FromWire(const v1::LogProbRequest& request) {
  return {.terms = TermsFromWire(request.options()),
          .inputs = RowsFromWire(request.inputs()),
          .first_row = request.first_row()};
}

SolveAsk FromWire(const v1::SolveRequest& request) {
  SolveAsk ask{.terms = TermsFromWire(request.options()),
               .save_at = {request.save_at().begin(), request.save_at().end()},
               .direction = request.direction(),
               .partial_states = request.partial_states()};
  if (request.has_inputs()) ask.inputs = RowsFromWire(request.inputs());
  if (request.has_state()) ask.state = RowsFromWire(request.state());
  if (request.has_span()) ask.span = {request.span().begin(), request.span().end()};
  return ask;
}

SolveAsk FromWire(const v1::SolveVjpRequest& request) {
  SolveAsk ask = FromWire(request.solve());
  ask.vjp.emplace();
  if (request.has_cotangent()) ask.vjp->cotangent = RowsFromWire(request.cotangent());
  return ask;
}

SolveAsk FromWire(const v1::SolveJvpRequest& request) {
  SolveAsk ask = FromWire(request.solve());
  ask.jvp.emplace();
  if (request.has_start_tangent()) ask.jvp->start_tangent = RowsFromWire(request.start_tangent());
  if (request.has_condition_tangent()) {
    ask.jvp->condition_tangent = RowsFromWire(request.condition_tangent());
  }
  return ask;
}

LogProbAsk FromWire(const v1::LogProbGradientRequest& request) {
  return {.terms = TermsFromWire(request.options()),
          .inputs = RowsFromWire(request.inputs()),
          .gradient = true};
}

// An empty tensor was not asked for: its field stays absent.
template <class Reply>
void SetTensor(const HostTensor& tensor, v1::Tensor* (Reply::*field)(), Reply* reply) {
  if (!tensor.bytes.empty()) ToWire(tensor, (reply->*field)());
}

void ToWire(const ClassifyAnswer& answer, v1::ClassifyReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  reply->mutable_labels()->Assign(answer.labels.begin(), answer.labels.end());
  reply->mutable_label_names()->Assign(answer.label_names.begin(), answer.label_names.end());
  SetTensor(answer.top_labels, &v1::ClassifyReply::mutable_top_labels, reply);
  SetTensor(answer.top_probabilities, &v1::ClassifyReply::mutable_top_probabilities, reply);
  SetTensor(answer.probabilities, &v1::ClassifyReply::mutable_probabilities, reply);
  SetTensor(answer.logits, &v1::ClassifyReply::mutable_logits, reply);
  SetTensor(answer.state, &v1::ClassifyReply::mutable_state, reply);
}

void ToWire(const SampleAnswer& answer, v1::SampleReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.samples, reply->mutable_samples());
  SetTensor(answer.log_density, &v1::SampleReply::mutable_log_density, reply);
}

void ToWire(const LogProbAnswer& answer, v1::LogProbReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.log_prob, reply->mutable_log_prob());
}

void ToWire(const SolveAnswer& answer, v1::SolveReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.state, reply->mutable_state());
  SetTensor(answer.saved, &v1::SolveReply::mutable_saved, reply);
  SetTensor(answer.outputs, &v1::SolveReply::mutable_outputs, reply);
  reply->mutable_saved_at()->Assign(answer.saved_at.begin(), answer.saved_at.end());
  reply->mutable_stopped_at()->Assign(answer.stopped_at.begin(), answer.stopped_at.end());
}

void ToWire(const SolveAnswer& answer, v1::SolveVjpReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.state, reply->mutable_state());
  ToWire(answer.product, reply->mutable_start_gradient());
  SetTensor(answer.condition_product, &v1::SolveVjpReply::mutable_condition_gradient, reply);
}

void ToWire(const SolveAnswer& answer, v1::SolveJvpReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.state, reply->mutable_state());
  ToWire(answer.product, reply->mutable_state_tangent());
}

void ToWire(const LogProbAnswer& answer, v1::LogProbGradientReply* reply) {
  ToWire(answer.info, reply->mutable_info());
  ToWire(answer.log_prob, reply->mutable_log_prob());
  ToWire(answer.gradient, reply->mutable_gradient());
  SetTensor(answer.condition_gradient, &v1::LogProbGradientReply::mutable_condition_gradient,
            reply);
}

// The request and the reply live until the call is answered.
template <class Request, class Reply>
CallStart Solves(Environment* environment, std::string_view name) {
  return Unary<Request, Reply>(
      environment, name, CallKind::kUnary,
      [environment](UnaryCall* unary, const Request& request, Reply* reply) {
        StartSolve(environment, unary, FromWire(request),
                   [reply](const auto& answer) { ToWire(answer, reply); });
      });
}

CallStart Streams(Environment* environment) {
  return [environment](grpc::GenericCallbackServerContext* context) {
    return new SampleStream(environment, context, [](const v1::SampleStreamRequest& request) {
      return FromWire(request);
    });
  };
}

CallStart Lists(Environment* environment) {
  return Unary<v1::ListModelsRequest, v1::ListModelsReply>(
      environment, "ListModels", CallKind::kUnary,
      [](UnaryCall* unary, const v1::ListModelsRequest&, v1::ListModelsReply* reply) {
        const auto registry = unary->call().Admit();
        if (registry.ok()) {
          for (const auto& served : (*registry)->List()) ToWire(*served, reply->add_models());
        }
        unary->Answer(registry.status());
      });
}

CallStart Gets(Environment* environment) {
  return Unary<v1::GetModelRequest, v1::GetModelReply>(
      environment, "GetModel", CallKind::kUnary,
      [](UnaryCall* unary, const v1::GetModelRequest& request, v1::GetModelReply* reply) {
        const auto served = unary->call().Pin(request.model());
        if (served.ok()) ToWire(**served, reply);
        unary->Answer(served.status());
      });
}

CallStart TellsOfServer(Environment* environment) {
  return Unary<v1::GetServerInfoRequest, v1::GetServerInfoReply>(
      environment, "GetServerInfo", CallKind::kUnary,
      [environment](UnaryCall* unary, const v1::GetServerInfoRequest&,
                    v1::GetServerInfoReply* reply) {
        const std::chrono::duration<double> uptime =
            environment->clock->Now() - environment->started;
        const absl::Status unread = unary->call().CheckUnread();
        if (unread.ok()) ToWire(environment->facts, uptime.count(), reply);
        unary->Answer(unread);
      });
}

}  // namespace

CallService MakeHyperserveService(Environment* environment) {
  return {.name = v1::Hyperserve::service_full_name(),
          .methods = {
              {"Classify", Solves<v1::ClassifyRequest, v1::ClassifyReply>(environment, "Classify")},
              {"Sample", Solves<v1::SampleRequest, v1::SampleReply>(environment, "Sample")},
              {"SampleStream", Streams(environment)},
              {"LogProb", Solves<v1::LogProbRequest, v1::LogProbReply>(environment, "LogProb")},
              {"Solve", Solves<v1::SolveRequest, v1::SolveReply>(environment, "Solve")},
              {"SolveVjp", Solves<v1::SolveVjpRequest, v1::SolveVjpReply>(environment, "SolveVjp")},
              {"SolveJvp", Solves<v1::SolveJvpRequest, v1::SolveJvpReply>(environment, "SolveJvp")},
              {"LogProbGradient", Solves<v1::LogProbGradientRequest, v1::LogProbGradientReply>(
                                      environment, "LogProbGradient")},
              {"ListModels", Lists(environment)},
              {"GetModel", Gets(environment)},
              {"GetServerInfo", TellsOfServer(environment)}}};
}

}  // namespace hyperserve
