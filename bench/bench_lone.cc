// What a lone request takes beside its solve: one row under each model's default plan, called over
// gRPC one after the other on an idle daemon, against the bare engine's solve of the same row plus
// an empty call (a health check). Medians of one run, measured in turns. The first ratio is to the
// sum of the two, each measured again and again; the second to both, one after the other.
//
//   bench_lone [MODELS] [CALLS] [PAUSE]      the shipped models, 2000, 0 us
//
// A pause before each of the three shows what the machine adds: cores that slept wake up late and
// cold, and a solve is a longer pause for the daemon's other threads than an empty call.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/lone_calls.h"
#include "client/client.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"

namespace hyperserve {
namespace {

constexpr int kTurns = 20;
constexpr int kWarmUpCalls = 50;

struct Lone {
  v1::GetModelReply model;
  std::function<absl::StatusOr<v1::SolveInfo>()> call;  // over gRPC
  std::function<absl::Status()> solve;                  // in this process
};

HostTensor OneImage(const Shape& input) {
  Shape shape = input;
  shape.insert(shape.begin(), 1);
  HostTensor image = HostTensor::Zeros(Dtype::kU8, shape);
  std::ranges::transform(ImageBytes(image.bytes.size()), image.bytes.begin(),
                         [](char byte) { return std::byte(byte); });
  return image;
}

// Of the generation that is served; null for a classical plan.
absl::StatusOr<std::shared_ptr<const Hypersolver>> CorrectionOf(const Plan& plan,
                                                                const std::string& model_folder,
                                                                const Model& model) {
  if (!plan.hypersolved()) return std::shared_ptr<const Hypersolver>();
  const std::string folder = HypersolverFolder(model_folder, plan.fixed()->method);
  HS_ASSIGN_OR_RETURN(const std::optional<int64_t> active, ReadActive(folder));
  return Hypersolver::Load(absl::StrCat(folder, "/", active.value_or(0)), model);
}

absl::StatusOr<Lone> LoneOf(const std::string& models, const std::string& name, Client& client,
                            DeviceRuntime& runtime) {
  Lone lone;
  HS_ASSIGN_OR_RETURN(lone.model, client.GetModel(name, Soon()));
  const std::string folder = absl::StrCat(models, "/", name);
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(folder));
  HS_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(lone.model.model().default_plan()));
  HS_ASSIGN_OR_RETURN(const auto correction, CorrectionOf(plan, folder, *model));
  StepPlan step_plan;
  if (plan.fixed() != nullptr) step_plan = *plan.fixed();
  if (plan.adaptive() != nullptr) step_plan = *plan.adaptive();
  v1::SolveOptions options;
  options.set_model(name);
  if (model->spec().kind == ModelKind::kClassifier) {
    const HostTensor image = OneImage(model->spec().input.shape);
    lone.call = [&client, options] { return ClassifyImages(client, options, 1); };
    lone.solve = [&runtime, model, correction, step_plan, image] {
      const BatchSpec spec{
          .model = model, .correction = correction, .want_state = false, .want_outputs = true};
      return SolveAlone(runtime, spec, step_plan,
                        {.rows = 1, .data = {image.dtype, image.shape, image.bytes}})
          .status();
    };
    return lone;
  }
  lone.call = [&client, options] { return SampleRows(client, options, 1); };
  lone.solve = [&runtime, model, correction, step_plan] {
    const BatchSpec spec{.model = model,
                         .correction = correction,
                         .entry = Entry::kNoise,
                         .direction = Direction::kNoiseToData};
    return SolveAlone(runtime, spec, step_plan, {.rows = 1}).status();
  };
  return lone;
}

struct Traffic {
  int calls = 2000;
  int pause_us = 0;  // before each
};

absl::Status Time(const std::function<absl::Status()>& act, int times, const Traffic& traffic,
                  std::vector<double>& seconds) {
  for (int i = 0; i < times; ++i) {
    if (traffic.pause_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(traffic.pause_us));
    const auto begin = std::chrono::steady_clock::now();
    HS_RETURN_IF_ERROR(act());
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return absl::OkStatus();
}

absl::Status Measure(const Lone& lone, Client& client, const Traffic& traffic) {
  const auto empty = [&] { return client.CheckHealth("", Soon()).status(); };
  const auto one_after_the_other = [&]() -> absl::Status {
    HS_RETURN_IF_ERROR(lone.solve());
    return empty();
  };
  std::vector<double> called, solved, idle, both, queued, daemon;
  const auto call_once = [&]() -> absl::Status {
    HS_ASSIGN_OR_RETURN(const v1::SolveInfo info, lone.call());
    queued.push_back(info.queue_seconds());
    daemon.push_back(info.solve_seconds());
    return absl::OkStatus();
  };
  HS_RETURN_IF_ERROR(Time(call_once, kWarmUpCalls, traffic, called));
  HS_RETURN_IF_ERROR(Time(lone.solve, kWarmUpCalls, traffic, solved));
  HS_RETURN_IF_ERROR(Time(empty, kWarmUpCalls, traffic, idle));
  for (auto* times : {&called, &queued, &daemon, &solved, &idle}) times->clear();
  for (int turn = 0; turn < kTurns; ++turn) {
    HS_RETURN_IF_ERROR(Time(call_once, traffic.calls / kTurns, traffic, called));
    HS_RETURN_IF_ERROR(Time(lone.solve, traffic.calls / kTurns, traffic, solved));
    HS_RETURN_IF_ERROR(Time(empty, traffic.calls / kTurns, traffic, idle));
    HS_RETURN_IF_ERROR(Time(one_after_the_other, traffic.calls / kTurns, traffic, both));
  }
  const double call = Median(called), solve = Median(solved), nothing = Median(idle);
  std::printf("%-12s %-12s %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f\n",
              lone.model.model().name().c_str(), lone.model.model().default_plan().c_str(),
              1e3 * call, 1e3 * solve, 1e3 * nothing, call / (solve + nothing), 1e3 * Median(both),
              call / Median(both), 1e3 * Median(queued), 1e3 * Median(daemon));
  return absl::OkStatus();
}

absl::Status MeasureAll(const std::string& models, const Traffic& traffic) {
  HS_ASSIGN_OR_RETURN(const auto daemon,
                      Daemon::Start(models, {"--read_only", "--device=cpu", "--log_level=warn"}));
  HS_ASSIGN_OR_RETURN(const auto runtime, MakeDeviceRuntime("cpu"));
  Client client(daemon->client_options());
  HS_ASSIGN_OR_RETURN(const v1::ListModelsReply list, client.ListModels(Soon()));
  std::printf("milliseconds, medians of %d\n%-12s %-12s %8s %8s %8s %8s %8s %8s %8s %8s\n",
              traffic.calls, "model", "plan", "call", "engine", "empty", "ratio", "both", "ratio",
              "queue", "solve");
  for (const v1::ModelSummary& summary : list.models()) {
    HS_ASSIGN_OR_RETURN(const Lone lone, LoneOf(models, summary.name(), client, *runtime));
    HS_RETURN_IF_ERROR(Measure(lone, client, traffic));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  hyperserve::Traffic traffic;
  if (argc > 2 && !absl::SimpleAtoi(argv[2], &traffic.calls)) return 2;
  if (argc > 3 && !absl::SimpleAtoi(argv[3], &traffic.pause_us)) return 2;
  const absl::Status status = hyperserve::MeasureAll(argc > 1 ? argv[1] : "models", traffic);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_lone: %s\n", std::string(status.message()).c_str());
  return 1;
}
