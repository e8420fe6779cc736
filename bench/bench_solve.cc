// Time of whole solves, from rows on the host to results on the host, by model, plan and batch
// size, on the engine that the device has for the plan; beside it what a row costs in evaluations
// and multiply-accumulates, and the rate of the latter.
//
//   HYPERSERVE_MODELS=models HYPERSERVE_BENCH_DEVICE=cuda:0 bench_solve [--benchmark_filter=...]
//
// Compare figures of one run only.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/planned_case.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

void Solve(benchmark::State& state, DeviceRuntime& runtime, const Case& of) {
  const HostTensor images = ImagesOf(of);
  Segment segment{.rows = of.rows};
  if (of.spec.entry == Entry::kInput) {
    segment.data = images.view();
  }
  (void)SolveAlone(runtime, of.spec, of.plan, segment);  // loads kernels and weights
  absl::StatusOr<BatchResult> result;
  for (auto _ : state) {
    result = SolveAlone(runtime, of.spec, of.plan, segment);
    if (!result.ok()) {
      state.SkipWithError(std::string(result.status().message()).c_str());
      return;
    }
  }
  double nfe = 0, macs = 0;
  for (const int32_t of_row : result->nfe) nfe += of_row;
  for (const int64_t of_row : result->macs) macs += static_cast<double>(of_row);
  state.counters["NFE/row"] = nfe / static_cast<double>(of.rows);
  state.counters["MAC/s"] = benchmark::Counter(macs, benchmark::Counter::kIsIterationInvariantRate);
  state.SetItemsProcessed(state.iterations() * of.rows);
}

// A GPU has an engine of tier fast, and is meant for many rows.
std::vector<int64_t> RowsOf(const Case& of, bool gpu) {
  if (of.spec.entry == Entry::kInput) return {1, 32, 256};
  if (gpu && of.spec.tier == Tier::kFast) return {1, 1024, 65536, 1 << 20};
  return gpu ? std::vector<int64_t>{1, 32, 1024, 1 << 20} : std::vector<int64_t>{1, 32, 256, 1024};
}

absl::Status Register(DeviceRuntime& runtime) {
  const bool gpu = runtime.device() != "cpu";
  const std::string repository = FromEnvironment("HYPERSERVE_MODELS", "models");
  std::vector<std::pair<std::string, std::vector<std::string>>> plans = {
      {"fashion", {"euler:2", "midpoint:2", "hyper_euler:2", "dopri5:1e-4"}},
      {"pinwheel", {"heun:1", "hyper_heun:1", "rk4:2", "dopri5:1e-5"}}};
  if (gpu) plans.push_back({"pinwheel", {"hyper_heun:1/fast", "rk4:2/fast"}});
  if (gpu) plans.push_back({"fashion", {"hyper_euler:2/fast", "rk4:2/fast"}});
  for (const auto& [name, of_model] : plans) {
    const std::string folder = absl::StrCat(repository, "/", name);
    HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(folder));
    for (const std::string& plan : of_model) {
      HS_ASSIGN_OR_RETURN(Case of, CaseOf(folder, model, plan));
      for (const int64_t rows : RowsOf(of, gpu)) {
        of.name = absl::StrCat(name, "/", plan, "/rows:", rows);
        of.rows = rows;
        benchmark::RegisterBenchmark(
            of.name.c_str(), [&runtime, of](benchmark::State& state) { Solve(state, runtime, of); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  auto runtime =
      hyperserve::MakeDeviceRuntime(hyperserve::FromEnvironment("HYPERSERVE_BENCH_DEVICE", "cpu"));
  absl::Status status = runtime.status();
  if (status.ok()) status = hyperserve::Register(**runtime);
  if (!status.ok()) {
    std::fprintf(stderr, "bench_solve: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
