// Open loop: calls come at a rate of their own, whatever became of the ones before. One image a
// call of `fashion` under rk4:1 with a deadline of half a second, at several times the rate that a
// closed loop reaches; for each the goodput (answers in time), what was refused and how fast, and
// the times of what was let in. The daemon has one solver, so that the caller has a core of its own
// on a small machine.
//
//   bench_overload [MODELS] [SECONDS]      the shipped models, 5 at each rate
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "core/base/status.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "tests/e2e/daemon.h"

namespace hyperserve {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline(500);
constexpr int kClosedLoopCalls = 8;  // at once

struct Seen {
  grpc::StatusCode code = grpc::OK;
  double seconds = 0;
};

double Seconds(SteadyClock::duration time) { return std::chrono::duration<double>(time).count(); }

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class Caller {
 public:
  explicit Caller(const std::string& address)
      : stub_(v1::Hyperserve::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    request_.mutable_options()->set_model("fashion");
    request_.mutable_options()->mutable_plan()->set_text("rk4:1");
    request_.mutable_inputs()->set_dtype(v1::DTYPE_U8);
    for (const int64_t size : {1, 1, 28, 28}) request_.mutable_inputs()->add_shape(size);
    request_.mutable_inputs()->set_data(std::string(28 * 28, '\x40'));
  }

  // Answers a second, by callers that wait for each answer.
  double ClosedLoop(double seconds) {
    std::atomic<int64_t> answers = 0;
    const auto end = SteadyClock::now() + std::chrono::duration<double>(seconds);
    std::vector<std::thread> callers;
    for (int i = 0; i < kClosedLoopCalls; ++i) {
      callers.emplace_back([&] {
        while (SteadyClock::now() < end) {
          grpc::ClientContext context;
          v1::ClassifyReply reply;
          if (stub_->Classify(&context, request_, &reply).ok()) ++answers;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    return static_cast<double>(answers) / seconds;
  }

  // Poisson arrivals at `rate`; returns what became of each call.
  std::vector<Seen> OpenLoop(double rate, double seconds) {
    std::mt19937_64 random(7);
    std::exponential_distribution<double> gap(rate);
    const auto begin = SteadyClock::now();
    std::vector<Seen> seen;
    std::mutex mutex;
    std::atomic<int64_t> waiting = 0;
    for (double at = gap(random); at < seconds; at += gap(random)) {
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<SteadyClock::duration>(
                                                std::chrono::duration<double>(at)));
      auto call = std::make_shared<Pending>();
      call->begun = SteadyClock::now();
      call->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
      ++waiting;
      stub_->async()->Classify(&call->context, &request_, &call->reply,
                               [&, call](const grpc::Status& status) {
                                 const double took = Seconds(SteadyClock::now() - call->begun);
                                 {
                                   const std::lock_guard lock(mutex);
                                   seen.push_back({status.error_code(), took});
                                 }
                                 --waiting;
                               });
    }
    while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return seen;
  }

 private:
  struct Pending {
    grpc::ClientContext context;
    v1::ClassifyReply reply;
    SteadyClock::time_point begun;
  };

  const std::unique_ptr<v1::Hyperserve::Stub> stub_;
  v1::ClassifyRequest request_;
};

void Print(double times, double rate, double seconds, const std::vector<Seen>& seen) {
  std::vector<double> answered, refused, late;
  for (const Seen& one : seen) {
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
  Caller caller(daemon->address());
  caller.ClosedLoop(0.5);
  const double capacity = caller.ClosedLoop(seconds);
  std::printf("closed loop: %.1f answers a second; times in ms\n", capacity);
  std::printf("%6s %9s %9s %9s %9s %9s %9s %9s %9s\n", "times", "offered/s", "goodput/s", "refused",
              "late", "in p50", "in p99", "ref. p50", "ref. p99");
  for (const double times : {0.5, 0.8, 1.0, 1.5, 2.0, 5.0, 10.0}) {
    const double rate = times * capacity;
    Print(times, rate, seconds, caller.OpenLoop(rate, seconds));
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
