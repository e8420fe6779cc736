// The subcommands of hyperserve-train. main calls one of them, once. Each prints its summary to
// standard output and its progress to standard error. Files are written complete or not at all, at
// the end: a command that failed or was stopped leaves nothing behind.
//
// kInvalidArgument: an option or the recipe is wrong. kCancelled: StopOnSignals saw a signal. Other
// codes come from reading, training and writing.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hyperserve {

struct CommandOptions {
  std::string recipe;     // path of the recipe
  std::string data;       // folder of IDX files
  std::string models;     // repository of the base model
  std::string out;        // hypersolver: repository for the new generation; empty: `models`
  std::string device;     // "cpu", "cuda", "cuda:N"
  int threads = 1;        // of one operation on the CPU
  int iterations = 0;     // of training; 0: as the recipe says
  std::string from;       // hypersolver: generation folder to start from; empty: none
  std::string picture;    // calibrate: PNG to draw; empty: none
  std::string html;       // report: the page to write
  bool replace = false;   // model: replaces the model of that name
  bool measured = false;  // calibrate: measures nothing, chooses the default plan among what was
  bool renew = false;     // calibrate: follows each generation by one with what was measured now
};

// Trains the base model and writes <models>/<name>/: model.json, weights.safetensors,
// calibration.json. kAlreadyExists, before any work: there is a model of that name, and `replace`
// is not set.
absl::Status TrainModel(const CommandOptions& options);
// Trains a correction and writes a new generation into <out>/<name>/hypersolvers/<method>/. The
// last line printed is its folder. Sends nothing to a daemon. kFailedPrecondition: the correction
// beats its base method at no K; nothing is written.
absl::Status TrainHypersolver(const CommandOptions& options);
// Measures the classical plans and writes <models>/<name>/calibration.json. It also measures and
// prints the plans of the corrections, chooses the default plan among all, and changes no
// generation: where `renew` is set, each one is followed by another with the same weights.
absl::Status Calibrate(const CommandOptions& options);
// Writes a page of HTML about the model and the generations that are served.
absl::Status Report(const CommandOptions& options);
// Prints how good a base model is: its accuracy, or its log-density with a test of its samples
// against the recipe's density. Writes nothing.
absl::Status Judge(const CommandOptions& options);

}  // namespace hyperserve
