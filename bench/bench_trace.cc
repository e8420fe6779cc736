// Short requests among long ones: one image a request, plans of K = 1 to 50 and an adaptive one,
// arrivals at 90 % of what the bare engine can do on as many threads, in this process.
//
//   bench_trace [MODELS] [SECONDS]      the shipped models, 60
//
// Prints the latency of the one-step requests (median, 99th percentile) beside that of a server
// that has only those, at the same times; and the work done in a second by the batcher when all
// requests come at once, against the bare engine's.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/io/tensor.h"
#include "core/model/net/cost.h"
#include "core/model/net/model.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/batching/batcher.h"
#include "server/batching/work.h"
#include "server/clock/clock.h"
#include "server/options.h"

namespace hyperserve {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kLoad = 0.9;
constexpr double kAdaptiveNfe = 30;  // of dopri5:1e-3 on fashion
constexpr int kSaturating = 60;      // requests of a measurement of throughput

struct Request {
  double at = 0;  // seconds from the start of the trace
  StepPlan plan;
  bool one_step = false;
};

double EvaluationsOf(const StepPlan& plan) {
  const auto* fixed = std::get_if<FixedPlan>(&plan);
  return fixed == nullptr ? kAdaptiveNfe : fixed->steps * StepEvaluations(fixed->method);
}

std::vector<Request> MakeRequests(int count, uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const Method methods[] = {Method::kEuler, Method::kMidpoint, Method::kRk4};
  const int steps[] = {1, 2, 5, 10, 20, 50};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    if (random() % 8 == 0) {
      requests.push_back(
          {.plan = AdaptivePlan{.method = {Method::kDopri5}, .rtol = 1e-3, .atol = 1e-3}});
      continue;
    }
    const FixedPlan plan{.method = {pick(methods)}, .steps = pick(steps)};
    requests.push_back({.plan = plan, .one_step = plan.steps == 1});
  }
  return requests;
}

class Bench {
 public:
  Bench(std::shared_ptr<const Model> model, DeviceRuntime* runtime, const Options& options)
      : model_(std::move(model)), runtime_(runtime), options_(options) {
    Shape shape = model_->spec().input.shape;
    shape.insert(shape.begin(), 1);
    image_ = HostTensor::Zeros(Dtype::kU8, shape);
    for (size_t i = 0; i < image_.bytes.size(); ++i) image_.bytes[i] = std::byte(i * 37 % 256);
  }

  // Seconds that the bare engine takes for all requests, on as many threads as there are solvers.
  absl::StatusOr<double> BareSeconds(const std::vector<Request>& requests) {
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    absl::Status first_error;
    const auto begin = SteadyClock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.solvers; ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < requests.size(); at = next++) {
          const absl::Status status =
              SolveAlone(*runtime_, Spec(), requests[at].plan, {.rows = 1, .data = image_.view()})
                  .status();
          const std::lock_guard lock(mutex);
          first_error.Update(status);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    HS_RETURN_IF_ERROR(first_error);
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
  }

  // Latency of each request, seconds.
  absl::StatusOr<std::vector<double>> Serve(const std::vector<Request>& requests) {
    Batcher batcher(BatcherOptionsOf(options_), {runtime_}, &Clock::Real());
    std::vector<double> latencies(requests.size());
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = requests.size();
    absl::Status first_error;
    const auto begin = SteadyClock::now();
    for (size_t i = 0; i < requests.size(); ++i) {
      std::this_thread::sleep_until(begin + std::chrono::duration<double>(requests[i].at));
      const auto sent = SteadyClock::now();
      batcher.Submit(WorkOf(requests[i].plan),
                     [&, i, sent](const absl::StatusOr<WorkResult>& result, const WorkTimes&) {
                       const std::lock_guard lock(mutex);
                       latencies[i] =
                           std::chrono::duration<double>(SteadyClock::now() - sent).count();
                       first_error.Update(result.status());
                       if (--left == 0) changed.notify_all();
                     });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
    HS_RETURN_IF_ERROR(first_error);
    return latencies;
  }

 private:
  BatchSpec Spec() const {
    return {.model = model_, .dtype = Dtype::kU8, .want_state = false, .want_outputs = true};
  }

  Work WorkOf(const StepPlan& plan) const {
    Work work{.spec = Spec(),
              .segment = {.rows = 1, .data = image_.view(), .control = ControlOf(plan)},
              .evaluations = EvaluationsOf(plan),
              .evaluation_macs = static_cast<double>(model_->field_macs())};
    SetPlan(plan, work.spec);
    work.patience.deadline = Clock::Real().Now() + std::chrono::hours(1);
    work.batch_rows_max =
        std::max<int64_t>(1, static_cast<int64_t>(options_.batch_macs_max / work.evaluation_macs));
    return work;
  }

  const std::shared_ptr<const Model> model_;
  DeviceRuntime* const runtime_;
  const Options options_;
  HostTensor image_;
};

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

absl::Status MeasureAll(const std::string& models, double seconds) {
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(absl::StrCat(models, "/fashion")));
  HS_ASSIGN_OR_RETURN(const auto runtime, MakeDeviceRuntime("cpu"));
  const Options options =
      InForce({}, {.cores = static_cast<int>(std::thread::hardware_concurrency())});
  Bench bench(model, runtime.get(), options);

  const std::vector<Request> at_once = MakeRequests(kSaturating, 1);
  HS_RETURN_IF_ERROR(bench.BareSeconds({at_once.begin(), at_once.begin() + 4}).status());
  HS_ASSIGN_OR_RETURN(const double bare, bench.BareSeconds(at_once));
  HS_ASSIGN_OR_RETURN(const std::vector<double> batched, bench.Serve(at_once));
  HS_ASSIGN_OR_RETURN(const double bare_again, bench.BareSeconds(at_once));
  const double bare_seconds = std::min(bare, bare_again);
  std::printf("%d requests at once: bare engine %.2f s, batcher %.2f s, goodput %.3f of it\n",
              kSaturating, bare_seconds, Quantile(batched, 1), bare_seconds / Quantile(batched, 1));

  const double rate = kLoad * kSaturating / bare_seconds;
  std::vector<Request> trace = MakeRequests(static_cast<int>(rate * seconds), 2);
  std::mt19937 random(3);
  std::exponential_distribution<double> gap(rate);
  double at = 0;
  for (Request& request : trace) request.at = at += gap(random);
  std::vector<Request> short_ones;
  std::copy_if(trace.begin(), trace.end(), std::back_inserter(short_ones),
               [](const Request& request) { return request.one_step; });

  HS_ASSIGN_OR_RETURN(const std::vector<double> alone, bench.Serve(short_ones));
  HS_ASSIGN_OR_RETURN(const std::vector<double> all, bench.Serve(trace));
  std::vector<double> among;
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].one_step) among.push_back(all[i]);
  }
  std::printf("%zu requests in %.0f s, %zu of one step; milliseconds\n", trace.size(), at,
              among.size());
  for (const double share : {0.5, 0.9, 0.99}) {
    std::printf(
        "quantile %.2f of one-step requests: alone %8.2f, among long ones %8.2f, ratio %.2f\n",
        share, 1e3 * Quantile(alone, share), 1e3 * Quantile(among, share),
        Quantile(among, share) / Quantile(alone, share));
  }
  std::printf("all requests: median %.0f, largest %.0f\n", 1e3 * Quantile(all, 0.5),
              1e3 * Quantile(all, 1));
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  double seconds = 60;
  if (argc > 2 && !absl::SimpleAtod(argv[2], &seconds)) return 2;
  const absl::Status status = hyperserve::MeasureAll(argc > 1 ? argv[1] : "models", seconds);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_trace: %s\n", std::string(status.message()).c_str());
  return 1;
}
