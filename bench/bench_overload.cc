// Open loop: calls come at a rate of their own, whatever became of the ones before. One image a
// call of `fashion` under rk4:1 with a deadline of half a second, at several times the rate that a
// closed loop reaches; for each the goodput (answers in time), what was refused and how fast, and
// the times of what was let in. The daemon has one solver, so that the caller has a core of its own
// on a small machine.
//
//   bench_overload [MODELS] [SECONDS]      the shipped models, 5 at each rate
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/open_loop.h"
#include "core/base/status.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "tests/e2e/daemon.h"

namespace hyperserve {
namespace {

constexpr std::chrono::milliseconds kDeadline(500);
constexpr int kClosedLoopCalls = 8;  // at once

// One image of `fashion` under rk4:1.
BeginCall ClassifyOne(const std::string& address) {
  const std::shared_ptr<v1::Hyperserve::Stub> stub =
      v1::Hyperserve::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::ClassifyRequest request;
  request.mutable_options()->set_model("fashion");
  request.mutable_options()->mutable_plan()->set_text("rk4:1");
  request.mutable_inputs()->set_dtype(v1::DTYPE_U8);
  for (const int64_t size : {1, 1, 28, 28}) request.mutable_inputs()->add_shape(size);
  request.mutable_inputs()->set_data(std::string(size_t{28} * 28, '\x40'));
  return [stub, request](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
    const auto reply = std::make_shared<v1::ClassifyReply>();
    stub->async()->Classify(
        context, &request, reply.get(),
        [reply, done = std::move(done)](const grpc::Status& status) { done(status); });
  };
}

void Print(double times, double rate, double seconds, const std::vector<SeenCall>& seen) {
  std::vector<double> answered, refused, late;
  for (const SeenCall& one : seen) {
    auto& list = one.code == grpc::OK                   ? answered
                 : one.code == grpc::RESOURCE_EXHAUSTED ? refused
                                                        : late;
    list.push_back(one.seconds);
  }
  std::vector<double> let_in = answered;
  let_in.insert(let_in.end(), late.begin(), late.end());
  std::printf("%6.1f %9.0f %9.1f %9zu %9zu %9.1f %9.1f %9.2f %9.2f\n", times, rate,
              static_cast<double>(answered.size()) / seconds, refused.size(), late.size(),
              1e3 * Percentile(let_in, 0.5), 1e3 * Percentile(let_in, 0.99),
              1e3 * Percentile(refused, 0.5), 1e3 * Percentile(refused, 0.99));
}

absl::Status Draw(const std::string& models, double seconds) {
  HS_ASSIGN_OR_RETURN(
      const auto daemon,
      Daemon::Start(models, {"--read_only", "--device=cpu", "--solvers=1", "--log_level=error"}));
  const BeginCall classify = ClassifyOne(daemon->address());
  ClosedLoop(classify, kClosedLoopCalls, 0.5);
  const double capacity = ClosedLoop(classify, kClosedLoopCalls, seconds);
  std::printf("closed loop: %.1f answers a second; times in ms\n", capacity);
  std::printf("%6s %9s %9s %9s %9s %9s %9s %9s %9s\n", "times", "offered/s", "goodput/s", "refused",
              "late", "in p50", "in p99", "ref. p50", "ref. p99");
  for (const double times : {0.5, 0.8, 1.0, 1.5, 2.0, 5.0, 10.0}) {
    const double rate = times * capacity;
    Print(times, rate, seconds, OpenLoop(classify, rate, seconds, kDeadline));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  double seconds = 5;
  if (argc > 2 && !absl::SimpleAtod(argv[2], &seconds)) return 2;
  const absl::Status status = hyperserve::Draw(argc > 1 ? argv[1] : "models", seconds);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_overload: %s\n", std::string(status.message()).c_str());
  return 1;
}
