// What makes a daemon ready, and what it holds then: seconds of the warm-up and of the timing of
// plans by batch size and tier, and the device's memory after each model of a repository. One
// thread warms here, so that the seconds are those of each; a daemon warms a GPU by two.
//
//   HYPERSERVE_MODELS=models HYPERSERVE_BENCH_DEVICE=cuda:0 bench_ready
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/planned_case.h"
#include "core/base/status.h"
#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_memory.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "server/clock/clock.h"
#include "server/registry/candidate.h"
#include "server/registry/registry_options.h"
#include "server/warm_up.h"

namespace hyperserve {
namespace {

// As a GPU's daemon has them by default (server/options.h).
constexpr double kRowsMax = 65536, kMacsMax = 1e11;

bool Never() { return false; }

// Another runtime, and the seconds of its warm-ups by tier and rows.
class MeasuredRuntime final : public DeviceRuntime {
 public:
  explicit MeasuredRuntime(std::unique_ptr<DeviceRuntime> real) : real_(std::move(real)) {}

  std::string_view device() const override { return real_->device(); }
  EngineKinds engines() const override { return real_->engines(); }
  absl::StatusOr<StartedRun> StartRun(const BatchSpec& spec, int64_t rows) override {
    return real_->StartRun(spec, rows);
  }
  absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                      const std::function<bool()>& cancelled) override {
    const auto begun = std::chrono::steady_clock::now();
    absl::Status status = real_->WarmUp(spec, control, rows, cancelled);
    Sum& sum = sums_[{spec.tier, rows}];
    sum.seconds += SecondsSince(begun);
    ++sum.runs;
    return status;
  }

  static double SecondsSince(std::chrono::steady_clock::time_point begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }

  // Prints them, and begins anew.
  void Tell(const std::string& of, double all) {
    std::printf("%s: %.2f s, then %.2f GB in use;", of.c_str(), all,
                static_cast<double>(MemoryInUse(device())) / 1e9);
    for (const auto& [key, sum] : std::exchange(sums_, {})) {
      std::printf(" %s:%lld %d in %.2f s,", std::string(TierName(key.first)).c_str(),
                  static_cast<long long>(key.second), sum.runs, sum.seconds);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  struct Sum {
    double seconds = 0;
    int runs = 0;
  };
  const std::unique_ptr<DeviceRuntime> real_;
  std::map<std::pair<Tier, int64_t>, Sum> sums_;  // by tier and rows
};

absl::Status Measure(const std::string& of, const WarmUpSubject& subject,
                     MeasuredRuntime& runtime) {
  const auto field = static_cast<double>(std::max<int64_t>(subject.model->field_macs(), 1));
  const auto rows = static_cast<int64_t>(std::clamp(kMacsMax / field, 1.0, kRowsMax));
  auto begun = std::chrono::steady_clock::now();
  HS_RETURN_IF_ERROR(WarmUp(subject, rows, Never, runtime));
  runtime.Tell(absl::StrCat(of, ", warm-up"), MeasuredRuntime::SecondsSince(begun));
  begun = std::chrono::steady_clock::now();
  HS_RETURN_IF_ERROR(TimePlans(subject, rows, Never, runtime, Clock::Real()));
  runtime.Tell(absl::StrCat(of, ", timing"), MeasuredRuntime::SecondsSince(begun));
  GiveBackMemory(runtime.device());
  std::printf("%s: %.2f GB in use after what is free was given back\n", of.c_str(),
              static_cast<double>(MemoryInUse(runtime.device())) / 1e9);
  return absl::OkStatus();
}

// The model, then its active generations, which are kept as a daemon keeps them.
absl::Status MeasureModel(const std::filesystem::path& folder, MeasuredRuntime& runtime,
                          std::vector<WarmUpSubject>& kept) {
  HS_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(folder.string()));
  HS_ASSIGN_OR_RETURN(Calibration calibration,
                      LoadCalibration((folder / "calibration.json").string(), *model));
  kept.push_back({.model = model});
  HS_RETURN_IF_ERROR(
      Measure(folder.filename().string(), {.model = model, .calibration = &calibration}, runtime));
  if (!std::filesystem::exists(folder / "hypersolvers")) return absl::OkStatus();
  for (const auto& method : std::filesystem::directory_iterator(folder / "hypersolvers")) {
    HS_ASSIGN_OR_RETURN(const std::optional<int64_t> active, ReadActive(method.path().string()));
    if (!active) continue;
    const std::string generation = absl::StrCat(method.path().string(), "/", *active);
    HS_ASSIGN_OR_RETURN(const auto correction, Hypersolver::Load(generation, *model));
    HS_ASSIGN_OR_RETURN(calibration, LoadCalibration(generation + "/calibration.json", *model));
    kept.push_back({.model = model, .correction = correction});
    HS_RETURN_IF_ERROR(
        Measure(absl::StrCat(folder.filename().string(), " ", method.path().filename().string()),
                {.model = model, .correction = correction, .calibration = &calibration}, runtime));
  }
  return absl::OkStatus();
}

absl::Status MeasureAll(const std::string& device, const std::string& repository) {
  const auto begun = std::chrono::steady_clock::now();
  HS_ASSIGN_OR_RETURN(auto real, MakeDeviceRuntime(device));
  MeasuredRuntime runtime(std::move(real));
  runtime.Tell("the device", MeasuredRuntime::SecondsSince(begun));
  std::vector<WarmUpSubject> kept;
  for (const auto& entry : std::filesystem::directory_iterator(repository)) {
    if (!std::filesystem::exists(entry.path() / "model.json")) continue;
    HS_RETURN_IF_ERROR(Annotate(MeasureModel(entry.path(), runtime, kept), entry.path().string()));
  }
  runtime.Tell("all", MeasuredRuntime::SecondsSince(begun));
  return absl::OkStatus();
}

}  // namespace
}  // namespace hyperserve

int main() {
  hyperserve::SetUpNumerics();
  const absl::Status measured =
      hyperserve::MeasureAll(hyperserve::FromEnvironment("HYPERSERVE_BENCH_DEVICE", "cuda:0"),
                             hyperserve::FromEnvironment("HYPERSERVE_MODELS", "models"));
  if (measured.ok()) return 0;
  std::fprintf(stderr, "bench_ready: %s\n", std::string(measured.message()).c_str());
  return 1;
}
