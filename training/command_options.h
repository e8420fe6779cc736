// The options of the subcommands of hyperserve-train: each takes some of them (main.cc).
#pragma once

#include <string>

namespace hyperserve {

// Plain data as the command line says it; whether the values fit each other is checked by the
// command that takes them.
struct CommandOptions {
  std::string recipe;            // path of the recipe
  std::string data;              // folder of images, or file of points
  std::string models;            // repository of the base model
  std::string out;               // hypersolver: repository for the new generation; empty: `models`
  std::string device;            // "cpu", "cuda", "cuda:N"
  double device_memory_max = 0;  // bytes of the GPU for tensors; 0: no bound but its size
  int threads = 1;               // of one operation on the CPU
  int iterations = 0;            // of training; 0: as the recipe says
  int patience = 0;         // iterations without a better held-out error; 0: as the recipe says
  double seconds = 0;       // of each fit; 0: as the recipe says
  std::string from;         // hypersolver, coverage: folder of another generation, for hypersolver
                            // also "active"; model: folder of another model; empty: none
  std::string evaluations;  // hypersolver: these n of a learned solver's recipe; empty: all
  std::string join;        // hypersolver: folders of generations whose tables it takes; empty: none
  std::string picture;     // calibrate: PNG to draw; report: SVG; empty: none
  std::string html;        // report: the page to write
  int rows = 0;            // rows to measure; 0: as many as the recipe has
  std::string allow_code;  // names of models, with commas, whose field.pt2 may be run
  bool resume = false;     // model, hypersolver: goes on from the run's checkpoints
  double checkpoint_every = 0;  // seconds between two checkpoints; 0: none
  std::string curve;            // file for the course of the fits; empty: none
  bool replace = false;         // model: replaces the model of that name
  bool measured = false;  // calibrate: measures nothing, chooses the default plan among what was
  bool renew = false;     // calibrate: follows each generation by one with what was measured now
};

}  // namespace hyperserve
