// The subcommands of hyperserve-train. Each prints its summary to standard output, progress to
// standard error, and writes whole files only: one that was stopped or failed leaves nothing
// behind.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hyperserve {

struct CommandOptions {
  std::string recipe;    // path
  std::string data;      // folder of IDX files
  std::string models;    // repository with the base model
  std::string out;       // repository that a new generation goes into; empty: `models`
  std::string device;    // "cpu", "cuda", "cuda:N"
  int threads = 1;       // of one operation on the CPU
  int iterations = 0;    // in place of the recipe's; 0: as the recipe says
  std::string from;      // generation folder to start from; empty: from nothing
  std::string picture;   // PNG to draw; empty: none
  bool replace = false;  // model: over one of that name that is there
};

// <models>/<name>/: model.json, weights.safetensors, calibration.json. kAlreadyExists, before any
// work, where a model is there and `replace` is not set.
absl::Status TrainModel(const CommandOptions& options);
// A new generation in <out>/<name>/hypersolvers/<method>/; its folder is the last line printed.
absl::Status TrainHypersolver(const CommandOptions& options);
// <models>/<name>/calibration.json anew. Generations are immutable: their plans are measured and
// shown beside, and keep the calibration they came with.
absl::Status Calibrate(const CommandOptions& options);

}  // namespace hyperserve
