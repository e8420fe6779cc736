// A device that records what it is asked to warm, and calibrations for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/batch_spec.h"
#include "core/engine/choose_engine.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "core/plan/step_control.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {

// Records what it is asked to warm.
class RecordingRuntime final : public DeviceRuntime {
 public:
  struct Asked {
    BatchSpec spec;
    StepControl control;
    int64_t rows = 0;
  };

  std::string_view device() const override { return name; }
  EngineKinds engines() const override { return kinds; }
  absl::StatusOr<StartedRun> StartRun(const BatchSpec&, int64_t) override {
    return absl::UnimplementedError("nothing is solved here");
  }
  absl::Status WarmUp(const BatchSpec& spec, const StepControl& control, int64_t rows,
                      const std::function<bool()>& cancelled) override {
    if (before) before();
    {
      const std::lock_guard lock(mutex);
      asked.push_back({spec, control, rows});
      clock.Advance(std::chrono::milliseconds(rows));
    }
    if (spec.method.method == broken) return absl::InternalError("it is broken");
    if (rows > room) return absl::ResourceExhaustedError("the memory of the device is full");
    return cancelled() ? absl::CancelledError("nobody waits") : absl::OkStatus();
  }

  absl::Status WarmThread(const BatchSpec& spec, int64_t rows) override {
    nets.push_back({spec, {}, rows});
    return rows > room ? absl::ResourceExhaustedError("it is full") : absl::OkStatus();
  }

  std::string name = "cpu";
  EngineKinds kinds;
  std::vector<Asked> nets;          // of WarmThread
  int64_t room = int64_t{1} << 40;  // rows
  std::function<void()> before;     // each warm-up
  Method broken = Method::kAlpha;
  std::mutex mutex;  // guards the two below while threads run
  std::vector<Asked> asked;
  FakeClock clock;  // a solve takes 1 ms a row
};

inline std::shared_ptr<const Model> Loaded(const fixture::LinearModel& files) {
  return Model::FromBytes(files.model_json, files.weights).value();
}

inline Calibration Calibrated(const std::vector<const char*>& plans) {
  Calibration calibration;
  for (const char* plan : plans) {
    PlanCalibration& measured = calibration.plans.emplace_back();
    measured.plan = ParsePlan(plan).value();
  }
  return calibration;
}

inline bool Never() { return false; }

}  // namespace hyperserve
