// The subcommands of hyperserve-train. main calls one of them, once. Each prints its summary to
// standard output and its progress to standard error. Files are written complete or not at all, at
// the end: a command that failed or was stopped leaves nothing behind but checkpoints of a long
// fit.
//
// kInvalidArgument: an option or the recipe is wrong. kCancelled: StopOnSignals saw a signal. Other
// codes come from reading, training and writing.
#pragma once

#include "absl/status/status.h"
#include "training/command_options.h"

namespace hyperserve {

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
// Measures the plans of the recipe and of the generations as docs/EXPERIMENTS.md needs them, prints
// them as a table with commas, and draws `picture`.
absl::Status RunPaperExperiment(const CommandOptions& options);
// Prints how good a base model is: its accuracy, its distance from the answers, or its log-density
// with a test of its samples against the recipe's density. Writes nothing.
absl::Status Judge(const CommandOptions& options);
// Follows the learned solver's served generation by one of the same tables whose rows have bounds
// of their error: fits the distance readouts and calibrates the bounds. The last line printed is
// its folder.
absl::Status FitBounds(const CommandOptions& options);
// Prints what the bounds of that generation are worth on held-out rows, which neither the fits nor
// the bounds saw, and what becomes of them on rows of another kind. `from` names another
// generation.
absl::Status ShowCoverage(const CommandOptions& options);

}  // namespace hyperserve
