// Where the time of a call goes: the daemon over gRPC on this machine's device, one call after the
// other, split into wire, queue and solve by what its replies say. Medians of one run.
//
//   bench_serve [MODELS] [DEVICE] [CALLS]      the shipped models, auto, 200
//
// wire: the call less the daemon's queue and solve: protobuf, gRPC both ways, the reply's rows.
// solve: from the first run to the answer, copies from and to the device among it. copy: bytes of
// the inputs to the device and of the answers back, alone, through pinned memory as the engines do.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/lone_calls.h"
#include "client/client.h"
#include "core/base/status.h"
#include "core/engine/devices.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"

namespace hyperserve {
namespace {

constexpr int kWarmUpCalls = 20;
constexpr int64_t kReplyBytesMax = 64 << 20;
constexpr int64_t kImageBytes = 784, kClasses = 10, kPointBytes = 8;

struct Case {
  const char* model;
  const char* plan;
  int64_t rows;
};
// The two works of the tables of kernels, from a lone row to a million.
constexpr Case kCases[] = {
    {"fashion", "hyper_euler:2", 1},     {"fashion", "hyper_euler:2", 256},
    {"pinwheel", "hyper_heun:1", 1},     {"pinwheel", "hyper_heun:1", 1024},
    {"pinwheel", "hyper_heun:1", 65536}, {"pinwheel", "hyper_heun:1", 1 << 20},
};

bool Images(const Case& one) { return std::string_view(one.model) == "fashion"; }

double SecondsOf(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The bytes of a call's rows to the device and back, median of `times`.
double CopySeconds(const Case& one, const std::string& device, int times) {
  if (device == "cpu") return 0;
  const auto pinned = at::TensorOptions(at::kByte).pinned_memory(true);
  const at::Tensor in = at::empty({one.rows * (Images(one) ? kImageBytes : 1)}, pinned);
  at::Tensor out = at::empty(
      {one.rows * (Images(one) ? kClasses * int64_t{sizeof(float)} : kPointBytes)}, pinned);
  const at::Tensor there = at::empty_like(out, at::TensorOptions(at::kByte).device(device));
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    seconds.push_back(SecondsOf([&] {
      if (Images(one)) in.to(at::Device(device));
      out.copy_(there);
    }));
  }
  return Median(seconds);
}

absl::Status Measure(const Case& one, const std::string& device, int calls, Client& client) {
  v1::SolveOptions options;
  options.set_model(one.model);
  options.mutable_plan()->set_text(absl::StrCat(one.plan, device == "cpu" ? "" : "/fast"));
  options.set_max_reply_bytes(kReplyBytesMax);
  std::vector<double> called, queued, solved;
  std::string engine;
  for (int i = -kWarmUpCalls; i < calls; ++i) {
    absl::StatusOr<v1::SolveInfo> info;
    const double seconds = SecondsOf([&] {
      info = Images(one) ? ClassifyImages(client, options, one.rows)
                         : SampleRows(client, options, one.rows);
    });
    HS_RETURN_IF_ERROR(Annotate(info.status(), absl::StrCat(one.model, " ", one.rows)));
    if (i < 0) continue;
    called.push_back(seconds);
    queued.push_back(info->queue_seconds());
    solved.push_back(info->solve_seconds());
    engine = info->engine();
  }
  const double call = Median(called), queue = Median(queued), solve = Median(solved);
  std::printf("%-9s %-18s %8lld %-9s %9.3f %9.3f %9.3f %9.3f %9.3f\n", one.model,
              options.plan().text().c_str(), static_cast<long long>(one.rows), engine.c_str(),
              1e3 * call, 1e3 * (call - queue - solve), 1e3 * queue, 1e3 * solve,
              1e3 * CopySeconds(one, device, calls));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status MeasureAll(const std::string& models, std::string device, int calls) {
  if (device == "auto") device = ListDevices().back().name;
  HS_ASSIGN_OR_RETURN(const auto daemon,
                      Daemon::Start(models, {"--read_only", absl::StrCat("--device=", device),
                                             "--log_level=warn"}));
  Client client(daemon->client_options());
  std::printf("%s: milliseconds, medians of %d\n%-9s %-18s %8s %-9s %9s %9s %9s %9s %9s\n",
              ListDevices().back().description.c_str(), calls, "model", "plan", "rows", "engine",
              "call", "wire", "queue", "solve", "of it copy");
  for (const Case& one : kCases) HS_RETURN_IF_ERROR(Measure(one, device, calls, client));
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  int calls = 200;
  if (argc > 3 && !absl::SimpleAtoi(argv[3], &calls)) return 2;
  const absl::Status status =
      hyperserve::MeasureAll(argc > 1 ? argv[1] : "models", argc > 2 ? argv[2] : "auto", calls);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_serve: %s\n", std::string(status.message()).c_str());
  return 1;
}
