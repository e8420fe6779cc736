// What every subcommand begins with: its recipe, its model's folder, its device.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/engine/device_runtime.h"
#include "core/model/net/model.h"
#include "core/model/spec/spec.h"
#include "training/command_options.h"
#include "training/data/recipe.h"

namespace hyperserve {

// Belongs to the main thread. Its device is open; files of the model are not read yet.
struct TrainingRun {
  Recipe recipe;
  std::string model_folder;
  FieldCode field_code = FieldCode::kRefused;  // of this model
  at::Device device = at::kCPU;
  std::unique_ptr<DeviceRuntime> runtime;
  // When the object was made.
  const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();

  std::string TimeText() const;  // since then
};

// kInvalidArgument: an option or the recipe is wrong, or there is no such device.
absl::StatusOr<std::unique_ptr<TrainingRun>> Begin(const CommandOptions& options);

// The model of a run. Fails as Model::Load and CheckConditionSource do.
absl::StatusOr<std::shared_ptr<const Model>> LoadBase(const TrainingRun& run);

// The served generation of a method's folder, else its newest; nullopt: there is none.
absl::StatusOr<std::optional<int64_t>> GenerationToMeasure(const std::string& folder);

}  // namespace hyperserve
