// What swaps cost those who are served. Two measurements:
//
// 1. Calls of one sample of the shipped `pinwheel` under hyper_heun:2 come at half the rate that a
//    closed loop reaches, while its correction is published again and again, each time through the
//    gate. Percentiles of the calls during an examination, within a second after a swap, and
//    elsewhere in the same run.
// 2. A tiny flow under the same load is swapped a thousand times; a line is fitted to the daemon's
//    resident memory over the swaps, the first fifth left out. Calls come for a while before: the
//    allocator's arenas grow with the first ten thousands of calls, whether there are swaps or not.
//
//   bench_swap [MODELS] [SECONDS] [SWAPS]      the shipped models, 120 seconds, 1,000 swaps
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/open_loop.h"
#include "client/client.h"
#include "client/deadline.h"
#include "core/base/status.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.grpc.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClosedLoopCalls = 4;
constexpr double kLoad = 0.5;  // of what the closed loop reaches
constexpr std::chrono::seconds kDeadline(5);
constexpr std::chrono::seconds kNear(1);  // after a swap
constexpr int kCallsBeforeMemory = 32;    // at once
constexpr double kSecondsBeforeMemory = 40;
constexpr std::chrono::milliseconds kPause(2500);  // between two publishes, on average

BeginCall SampleOne(const std::string& address, const std::string& model) {
  const std::shared_ptr<v1::Hyperserve::Stub> stub =
      v1::Hyperserve::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::SampleRequest request;
  request.mutable_options()->set_model(model);
  request.mutable_options()->mutable_plan()->set_text("hyper_heun:2");
  request.set_rows(1);
  return [stub, request](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
    const auto reply = std::make_shared<v1::SampleReply>();
    stub->async()->Sample(
        context, &request, reply.get(),
        [reply, done = std::move(done)](const grpc::Status& status) { done(status); });
  };
}

struct Swap {
  Clock::time_point asked, done;
};

absl::StatusOr<Swap> Publish(Client& client, const v1::PublishHypersolverRequest& request) {
  Swap swap{.asked = Clock::now()};
  HS_RETURN_IF_ERROR(client.Publish(request, Deadline::In(std::chrono::minutes(2))).status());
  swap.done = Clock::now();
  return swap;
}

void Print(const char* where, const std::vector<double>& seconds) {
  std::printf("%-34s %8zu %9.2f %9.2f %9.2f\n", where, seconds.size(),
              1e3 * Percentile(seconds, 0.5), 1e3 * Percentile(seconds, 0.99),
              1e3 * Percentile(seconds, 0.999));
}

void PrintLatencies(const std::vector<SeenCall>& seen, const std::vector<Swap>& swaps) {
  std::vector<double> examined, near, elsewhere;
  int64_t failed = 0;
  for (const SeenCall& call : seen) {
    failed += call.code == grpc::OK ? 0 : 1;
    const auto during = [&](const Swap& swap) {
      return call.begun >= swap.asked && call.begun <= swap.done;
    };
    const auto after = [&](const Swap& swap) {
      return call.begun > swap.done && call.begun <= swap.done + kNear;
    };
    auto& list = std::ranges::any_of(swaps, after)    ? near
                 : std::ranges::any_of(swaps, during) ? examined
                                                      : elsewhere;
    list.push_back(call.seconds);
  }
  std::printf("%zu swaps, %zu calls, %lld failed; times in ms\n", swaps.size(), seen.size(),
              static_cast<long long>(failed));
  std::printf("%-34s %8s %9s %9s %9s\n", "", "calls", "p50", "p99", "p99.9");
  Print("during an examination", examined);
  Print("within a second after a swap", near);
  Print("elsewhere", elsewhere);
  std::printf("99th percentile within a second of a swap over that elsewhere: %.3f\n",
              Percentile(near, 0.99) / Percentile(elsewhere, 0.99));
}

absl::Status MeasureLatencies(const std::string& models, double seconds) {
  const TemporaryFolder folder;
  std::error_code error;
  std::filesystem::copy(models + "/pinwheel", folder.path() + "/pinwheel",
                        std::filesystem::copy_options::recursive, error);
  if (error) return absl::NotFoundError(absl::StrCat(models, "/pinwheel: ", error.message()));
  const std::string corrections =
      HypersolverFolder(folder.path() + "/pinwheel", {.method = Method::kHeun});
  HS_ASSIGN_OR_RETURN(const auto active, ReadActive(corrections));
  HS_ASSIGN_OR_RETURN(const GenerationFiles files,
                      ReadGeneration(absl::StrCat(corrections, "/", active.value_or(1))));
  const auto request = tiny::PublishRequest(files, "pinwheel");
  HS_ASSIGN_OR_RETURN(const auto daemon,
                      Daemon::Start(folder.path(), {"--device=cpu", "--log_level=error"}));
  const BeginCall sample = SampleOne(daemon->address(), "pinwheel");
  ClosedLoop(sample, kClosedLoopCalls, 1);
  const double rate = kLoad * ClosedLoop(sample, kClosedLoopCalls, 3);
  std::atomic<bool> over = false;
  auto publisher = std::async(std::launch::async, [&]() -> absl::StatusOr<std::vector<Swap>> {
    Client client(daemon->client_options());
    std::mt19937_64 random(11);
    std::uniform_real_distribution<double> share(0.5, 1.5);
    std::vector<Swap> swaps;
    while (!over) {
      std::this_thread::sleep_for(share(random) * kPause);
      HS_ASSIGN_OR_RETURN(swaps.emplace_back(), Publish(client, request));
    }
    return swaps;
  });
  const auto seen = OpenLoop(sample, rate, seconds, kDeadline);
  over = true;
  HS_ASSIGN_OR_RETURN(const std::vector<Swap> swaps, publisher.get());
  std::printf("pinwheel, hyper_heun:2, one row a call, %.0f calls a second\n", rate);
  PrintLatencies(seen, swaps);
  return absl::OkStatus();
}

double ResidentBytes(const Daemon& daemon) {
  const std::string page = daemon.Get("/metrics").body, name = "\nprocess_resident_memory_bytes ";
  const size_t at = page.find(name);
  return at == page.npos ? NAN : std::stod(page.substr(at + name.size()));
}

// The slope of y over 0, 1, 2, ... by least squares, and its standard error. Memory moves by whole
// pages and stays, so the increments are taken to be independent, not the values: of such a walk
// the slope has the variance of 1.2 / n increments.
std::pair<double, double> Slope(const std::vector<double>& y) {
  const auto n = static_cast<double>(y.size());
  const double middle = (n - 1) / 2;
  double mean = 0, product = 0, squares = 0, scatter = 0;
  for (const double value : y) mean += value / n;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    product += x * (y[i] - mean);
    squares += x * x;
  }
  const double slope = product / squares;
  for (size_t i = 1; i < y.size(); ++i) {
    const double beyond = y[i] - y[i - 1] - slope;
    scatter += beyond * beyond / (n - 2);
  }
  return {slope, std::sqrt(1.2 * scatter / n)};
}

absl::Status MeasureMemory(int swaps) {
  const TemporaryFolder folder;
  tiny::WriteFlowRepository(folder.path(), 0.9);
  HS_ASSIGN_OR_RETURN(const auto daemon,
                      Daemon::Start(folder.path(), {"--device=cpu", "--log_level=error"}));
  const BeginCall sample = SampleOne(daemon->address(), tiny::kFlow);
  ClosedLoop(sample, kCallsBeforeMemory, kSecondsBeforeMemory);
  std::atomic<bool> over = false;
  auto load = std::async(std::launch::async, [&] {
    while (!over) OpenLoop(sample, 200, 1, kDeadline);
  });
  Client client(daemon->client_options());
  const auto request = tiny::PublishRequest(tiny::Candidate(0.9));
  std::vector<double> resident;
  absl::Status status;
  for (int i = 0; i < swaps && status.ok(); ++i) {
    status = Publish(client, request).status();
    resident.push_back(ResidentBytes(*daemon));
  }
  over = true;
  load.wait();
  HS_RETURN_IF_ERROR(status);
  const std::vector<double> settled(resident.begin() + swaps / 5, resident.end());
  const auto [slope, error] = Slope(settled);
  std::printf(
      "%d swaps of a tiny flow: resident %.1f MB after %d, %.1f MB at the end; "
      "slope %.1f +- %.1f bytes a swap\n",
      swaps, 1e-6 * settled.front(), swaps / 5, 1e-6 * settled.back(), slope, error);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  double seconds = 120;
  int swaps = 1000;
  if (argc > 2 && !absl::SimpleAtod(argv[2], &seconds)) return 2;
  if (argc > 3 && (!absl::SimpleAtoi(argv[3], &swaps) || swaps < 10)) return 2;
  absl::Status status = hyperserve::MeasureLatencies(argc > 1 ? argv[1] : "models", seconds);
  status.Update(hyperserve::MeasureMemory(swaps));
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_swap: %s\n", std::string(status.message()).c_str());
  return 1;
}
