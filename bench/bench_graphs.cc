// Captured steps and tables against the same made one operation after the other, on a GPU: time of
// whole solves of the shipped models in tier exact, from rows on the host to results on the host.
// Medians of one run, the two measured in turns. Then the readable engine where another one serves,
// or where rows are too many to be captured.
//
//   HYPERSERVE_MODELS=models HYPERSERVE_BENCH_DEVICE=cuda:0 bench_graphs
//   bench_graphs --json         a JSON object a line, for bench/graph_results.py
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/planned_case.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/engine/readable/slot_run.h"
#include "core/engine/torch_scope.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"

namespace hyperserve {
namespace {

constexpr int kRepeats = 200, kWarmUps = 20;
constexpr int kRepeatsLeast = 20;       // of solves that take long:
constexpr double kMilliseconds = 1500;  // after so much no further one begins
constexpr int64_t kRowCounts[] = {1, 32, 256};
constexpr struct {
  const char *model, *plan;
} kWorks[] = {{"pinwheel", "hyper_heun:1"}, {"pinwheel", "rk4:4"},      {"rings", "hyper_heun:1"},
              {"fashion", "hyper_euler:2"}, {"fashion", "dopri5:1e-4"}, {"fashion", "learned:6"},
              {"cifar", "learned:6"},       {"rings", "learned:6"},     {"pinwheel", "learned:6"},
              {"two_moons", "learned:6"}};

constexpr struct {
  const char *model, *plan;
  int64_t rows;
} kReadableWorks[] = {
    {"pinwheel", "hyper_heun:1", 1024},
    {"fashion", "hyper_euler:2", 32},
    {"pinwheel", "dopri5:1e-5", 1 << 20},
};

enum class Form { kTable, kJson };

absl::StatusOr<double> Milliseconds(DeviceRuntime& runtime, const Case& of,
                                    const Segment& segment) {
  const auto begin = std::chrono::steady_clock::now();
  HS_RETURN_IF_ERROR(SolveAlone(runtime, of.spec, of.plan, segment).status());
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  return passed.count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

absl::StatusOr<std::string> EngineOf(DeviceRuntime& runtime, const BatchSpec& spec, int64_t rows) {
  HS_ASSIGN_OR_RETURN(const auto started, runtime.StartRun(spec, rows));
  return started.choice.engine;
}

absl::Status Measure(DeviceRuntime& captured, DeviceRuntime& readable, const Case& of, Form form) {
  const HostTensor images = ImagesOf(of);
  Segment segment{.rows = of.rows};
  if (of.spec.entry == Entry::kInput) segment.data = images.view();
  HostTensor condition;
  if (const Shape& features = of.spec.model->spec().condition; !features.empty()) {
    condition = HostTensor::Zeros(Dtype::kF32, {1, features[0]});
    segment.condition = condition.view();
  }
  BatchSpec spec = of.spec;
  SetPlan(of.plan, spec);
  if (spec.entry == Entry::kInput) spec.dtype = images.dtype;
  HS_RETURN_IF_ERROR(captured.WarmUp(spec, ControlOf(of.plan), of.rows, nullptr));
  HS_ASSIGN_OR_RETURN(const std::string engine, EngineOf(captured, spec, of.rows));
  std::vector<double> of_graph, of_readable;
  double all = 0;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    if (i >= kWarmUps + kRepeatsLeast && all > kMilliseconds) break;
    HS_ASSIGN_OR_RETURN(const double one, Milliseconds(captured, of, segment));
    HS_ASSIGN_OR_RETURN(const double other, Milliseconds(readable, of, segment));
    all += one + other;
    if (i < kWarmUps) continue;
    of_graph.push_back(one);
    of_readable.push_back(other);
  }
  const double ms = Median(of_graph), other_ms = Median(of_readable);
  std::printf(
      form == Form::kJson
          ? "{\"work\": \"captured steps\", \"plan\": \"%s\", \"tier\": \"exact\", \"rows\": %lld, "
            "\"engine\": \"%s\", \"ms\": %.4f, \"peers_ms\": {\"readable\": %.4f}}\n"
          : "%-24s %5lld rows  %-8s %.4f ms, readable %.4f ms\n",
      of.name.c_str(), static_cast<long long>(of.rows), engine.c_str(), ms, other_ms);
  return absl::OkStatus();
}

// One solve in slots, whatever engine serves the plan.
absl::Status SolveInSlots(const Case& of, Segment segment, const StreamLease& stream) {
  BatchSpec spec = of.spec;
  SetPlan(of.plan, spec);
  if (spec.entry == Entry::kInput) spec.dtype = segment.data.dtype;
  segment.control = ControlOf(of.plan);
  const std::unique_ptr<Run> run = MakeSlotRun(spec, stream, of.rows);
  HS_RETURN_IF_ERROR(run->Admit(segment).status());
  for (bool done = false; !done;) {
    HS_ASSIGN_OR_RETURN(done, run->Advance(1 << 20, nullptr));
  }
  return run->TakeFinished().status();
}

absl::Status MeasureReadable(const std::string& device, const Case& of, Form form) {
  const HostTensor images = ImagesOf(of);
  Segment segment{.rows = of.rows};
  if (of.spec.entry == Entry::kInput) segment.data = images.view();
  const auto stream = std::make_shared<const c10::Stream>(c10::Stream::DEFAULT, at::Device(device));
  std::vector<double> times;
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const bool long_enough =
        begin - begun > std::chrono::duration<double, std::milli>(kMilliseconds);
    if (i >= kWarmUps + kRepeatsLeast && long_enough) break;
    HS_RETURN_IF_ERROR(SolveInSlots(of, segment, stream));
    const std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUps) times.push_back(passed.count());
  }
  std::printf(form == Form::kJson
                  ? "{\"work\": \"readable engine\", \"plan\": \"%s\", \"tier\": \"exact\", "
                    "\"rows\": %lld, \"engine\": \"readable\", \"ms\": %.4f}\n"
                  : "%-24s %7lld rows  readable %.4f ms\n",
              of.name.c_str(), static_cast<long long>(of.rows), Median(times));
  return absl::OkStatus();
}

absl::StatusOr<Case> NamedCase(const char* name, const char* plan) {
  const std::string folder =
      absl::StrCat(FromEnvironment("HYPERSERVE_MODELS", "models"), "/", name);
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(folder));
  HS_ASSIGN_OR_RETURN(Case of, CaseOf(folder, model, plan));
  of.name = absl::StrCat(name, " ", plan);
  return of;
}

absl::Status MeasureAll(const std::string& device, Form form) {
  HS_ASSIGN_OR_RETURN(const auto captured, MakeDeviceRuntime(device));
  HS_ASSIGN_OR_RETURN(const auto readable, MakeDeviceRuntime(device));
  for (const DeviceInfo& known : ListDevices()) {
    if (form == Form::kJson && known.name == captured->device()) {
      std::printf("{\"card\": \"%s\"}\n", known.description.c_str());
    }
  }
  for (const auto& work : kWorks) {
    HS_ASSIGN_OR_RETURN(Case of, NamedCase(work.model, work.plan));
    for (const int64_t rows : kRowCounts) {
      of.rows = rows;
      HS_RETURN_IF_ERROR(Measure(*captured, *readable, of, form));
    }
  }
  for (const auto& work : kReadableWorks) {
    HS_ASSIGN_OR_RETURN(Case of, NamedCase(work.model, work.plan));
    of.rows = work.rows;
    HS_RETURN_IF_ERROR(MeasureReadable(std::string(captured->device()), of, form));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  const absl::Status measured =
      hyperserve::MeasureAll(hyperserve::FromEnvironment("HYPERSERVE_BENCH_DEVICE", "cuda"),
                             json ? hyperserve::Form::kJson : hyperserve::Form::kTable);
  if (measured.ok()) return 0;
  std::fprintf(stderr, "bench_graphs: %s\n", std::string(measured.message()).c_str());
  return 1;
}
