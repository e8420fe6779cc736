#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "programs/command_line.h"
#include "programs/standard_streams.h"
#include "programs/stop.h"
#include "training/commands.h"

ABSL_FLAG(std::string, recipe, "", "the recipe, a file of training/recipes/");
ABSL_FLAG(std::string, data, "/usr/share/datasets/fashion-mnist",
          "folder of the IDX files, for recipes that learn from images");
ABSL_FLAG(std::string, models, "", "model repository: written by model, read by the others");
ABSL_FLAG(std::string, out, "",
          "hypersolver: repository for the new generation; --models if empty");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda, cuda:N; auto: a GPU where there is one");
ABSL_FLAG(
    int, threads, 1,
    "threads of one operation on the CPU; more help only with images and cores that are idle");
ABSL_FLAG(int, iterations, 0, "in place of the recipe's; 0: as the recipe says");
ABSL_FLAG(bool, replace, false,
          "model: write over the model of that name; corrections made for it are refused then");
ABSL_FLAG(std::string, from, "", "hypersolver: generation folder whose weights it starts from");
ABSL_FLAG(std::string, picture, "", "calibrate: PNG of error against NFE and MACs, by gnuplot");

namespace hyperserve {
namespace {

constexpr int kInterrupted = 130;
constexpr char kUsage[] =
    "hyperserve-train: trains models and their corrections\n\n"
    "  hyperserve-train model       --recipe=FILE --models=FOLDER [--data=FOLDER] [--replace]\n"
    "  hyperserve-train hypersolver --recipe=FILE --models=FOLDER [--out=FOLDER] [--from=FOLDER]\n"
    "  hyperserve-train calibrate   --recipe=FILE --models=FOLDER [--picture=FILE]\n"
    "  hyperserve-train --version\n";

// The page of our own flags; Abseil's page has the flags of every library too.
std::string Help() {
  std::map<std::string, std::string> lines;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::EndsWith(flag->Filename(), "training/main.cc")) continue;
    const std::string value = flag->DefaultValue();
    lines[std::string(name)] = absl::StrFormat("  --%-11s %s (default: %s)\n", name, flag->Help(),
                                               value.empty() ? "none" : value);
  }
  std::string text = absl::StrCat(kUsage, "\n");
  for (const auto& [name, line] : lines) text += line;
  return text;
}

// The problem of the command line; empty: none.
std::string UsageProblem(const std::vector<char*>& words) {
  const std::string command = words.size() > 1 ? words[1] : "";
  if (command.empty()) return "a command is needed: model, hypersolver or calibrate";
  if (command != "model" && command != "hypersolver" && command != "calibrate") {
    return absl::StrCat("no command '", command, "': there are model, hypersolver, calibrate");
  }
  if (const size_t arguments = words.size() - 2; arguments > 0) {
    return absl::StrCat(command, " takes flags only; ", arguments, " given");
  }
  if (absl::GetFlag(FLAGS_recipe).empty()) return command + " takes --recipe=FILE";
  if (absl::GetFlag(FLAGS_models).empty()) return command + " takes --models=FOLDER";
  if (const int threads = absl::GetFlag(FLAGS_threads); threads < 1) {
    return absl::StrCat("--threads=", threads, " is below 1, the least");
  }
  if (const int iterations = absl::GetFlag(FLAGS_iterations); iterations < 0) {
    return absl::StrCat("--iterations=", iterations, " is below 0, which means the recipe's");
  }
  return "";
}

std::string DeviceName() {
  const std::string name = absl::GetFlag(FLAGS_device);
  if (name != "auto") return name;
  std::string found = "cpu";
  for (const DeviceInfo& device : ListDevices()) {
    if (device.name == "cuda:0") found = device.name;
  }
  return found;
}

absl::Status RunCommand(const std::string& command) {
  const CommandOptions options{.recipe = absl::GetFlag(FLAGS_recipe),
                               .data = absl::GetFlag(FLAGS_data),
                               .models = absl::GetFlag(FLAGS_models),
                               .out = absl::GetFlag(FLAGS_out),
                               .device = DeviceName(),
                               .threads = absl::GetFlag(FLAGS_threads),
                               .iterations = absl::GetFlag(FLAGS_iterations),
                               .from = absl::GetFlag(FLAGS_from),
                               .picture = absl::GetFlag(FLAGS_picture),
                               .replace = absl::GetFlag(FLAGS_replace)};
  if (command == "model") return TrainModel(options);
  if (command == "hypersolver") return TrainHypersolver(options);
  return Calibrate(options);
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-help" || word == "-h" || (i == 1 && word == "help")) {
      std::fputs(Help().c_str(), stdout);
      return 0;
    }
  }
  const std::vector<char*> words = ParseFlags("hyperserve-train", argc, argv);
  if (const std::string problem = UsageProblem(words); !problem.empty()) {
    std::fprintf(stderr, "hyperserve-train: %s\nsee `hyperserve-train --help`\n", problem.c_str());
    return kUsageExitCode;
  }
  StopOnSignals();
  const absl::Status status = RunCommand(words[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperserve-train: %s\n", std::string(status.message()).c_str());
  return absl::IsCancelled(status) && StopRequested() ? kInterrupted : 1;
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::HoldStandardStreams();
  hyperserve::SetUpNumerics();
  return hyperserve::Main(argc, argv);
}
