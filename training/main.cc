#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "programs/command_line.h"
#include "programs/standard_streams.h"
#include "programs/stop.h"
#include "training/command_options.h"
#include "training/commands.h"
#include "training/memory_advice.h"

ABSL_FLAG(std::string, recipe, "", "the recipe, a file of training/recipes/");
ABSL_FLAG(std::string, data, "/usr/share/datasets/fashion-mnist",
          "recipes of images: the folder of their files; of points: the file of rows, - for stdin");
ABSL_FLAG(std::string, models, "", "model repository: written by model, read by the others");
ABSL_FLAG(std::string, out, "",
          "hypersolver: repository for the new generation; --models if empty");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda, cuda:N; auto: a GPU where there is one");
ABSL_FLAG(double, device_memory_max, 0,
          "bytes that this process may take of the GPU for tensors, beside a daemon; what needs "
          "more ends in words; 0: as much as there is");
ABSL_FLAG(
    int, threads, 1,
    "threads of one operation on the CPU; more help only with images and cores that are idle");
ABSL_FLAG(int, iterations, 0, "in place of the recipe's; 0: as the recipe says");
ABSL_FLAG(int, patience, 0,
          "in place of the recipe's optimiser.patience: stops a fit where so many iterations have "
          "not made its held-out error less by a thousandth; 0: as the recipe says");
ABSL_FLAG(double, seconds, 0,
          "in place of the recipe's optimiser.seconds: stops each fit, of a base, a correction or "
          "one table, after so many seconds, and keeps the best; 0: as the recipe says");
ABSL_FLAG(bool, resume, false,
          "goes on where the same run was stopped or killed, to the same results; begins at the "
          "start where it left no checkpoint");
ABSL_FLAG(double, checkpoint_every, 30,
          "seconds between two checkpoints, which --resume goes on from; they are kept beside the "
          "models, in .training, until the run is done; 0: none");
ABSL_FLAG(std::string, curve, "",
          "CSV to write: loss, rate and held-out error by iteration of each fit");
ABSL_FLAG(std::string, allow_code, "",
          "models whose field.pt2, which is code with all rights of this program, is run: names "
          "with commas; empty: none, and such models are refused");
ABSL_FLAG(bool, replace, false,
          "model: write over the model of that name; corrections made for it are refused then");
ABSL_FLAG(
    std::string, from, "",
    "hypersolver: generation folder whose weights it starts from, or `active`, for the served one; "
    "model: model folder whose weights it starts from; coverage: the generation it shows");
ABSL_FLAG(std::string, evaluations, "",
          "hypersolver: fits these tables of a learned solver's recipe, as 1,2, without bounds of "
          "rows; all if empty");
ABSL_FLAG(std::string, join, "",
          "hypersolver: fits nothing; takes the tables of these generation folders, as A,B, which "
          "processes fitted side by side");
ABSL_FLAG(int, rows, 0, "held-out rows to measure; 0: as many as the recipe has");
ABSL_FLAG(bool, renew, false,
          "calibrate: follow each generation by one of the same weights with the new measurements");
ABSL_FLAG(bool, measured, false,
          "calibrate: measure nothing, choose the default plan among what was measured before");
ABSL_FLAG(
    std::string, picture, "",
    "calibrate: PNG of error against NFE and MACs, by gnuplot; report: SVG of error against MACs; "
    "experiment: SVG");
ABSL_FLAG(std::string, html, "", "report: the page to write, which needs no other file");

namespace hyperserve {
namespace {

struct TrainerCommand {
  std::string_view name;
  std::string_view summary;
  std::string_view flags;  // separated by blanks; the first two are needed
  absl::Status (*run)(const CommandOptions& options);
};
constexpr std::array<TrainerCommand, 8> kCommands = {{
    {"model", "trains a base model",
     "recipe models data from replace resume checkpoint_every patience seconds curve device "
     "device_memory_max threads iterations",
     TrainModel},
    {"hypersolver", "trains a correction of a model, or a learned solver, as its next generation",
     "recipe models out from evaluations join rows resume checkpoint_every patience seconds curve "
     "allow_code data device device_memory_max threads iterations",
     TrainHypersolver},
    {"calibrate", "measures error and cost of the plans of a model, and of its corrections",
     "recipe models picture renew measured allow_code data device device_memory_max threads",
     Calibrate},
    {"report", "writes a page about a model: errors, costs, learned tables, the bar, samples",
     "recipe models html picture allow_code data device device_memory_max threads", Report},
    {"experiment", "measures plans for a figure of docs/EXPERIMENTS.md: fronts, alphas or samples",
     "recipe models picture allow_code data device device_memory_max threads", RunPaperExperiment},
    {"judge", "tells a model's accuracy, or tests a flow's samples against its density",
     "recipe models allow_code data device device_memory_max threads", Judge},
    {"bounds", "gives the rows of a learned solver bounds of their error, as its next generation",
     "recipe models rows allow_code data device device_memory_max threads", FitBounds},
    {"coverage", "shows what these bounds are worth on held-out rows and on rows of another kind",
     "recipe models from rows allow_code data device device_memory_max threads", ShowCoverage},
}};

const TrainerCommand* FindCommand(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &TrainerCommand::name);
  return found == kCommands.end() ? nullptr : &*found;
}

std::string CommandNames() {
  return absl::StrJoin(kCommands, ", ", [](std::string* out, const TrainerCommand& command) {
    absl::StrAppend(out, Absl(command.name));
  });
}

std::string Help() {
  std::string text = "hyperserve-train: trains models and their corrections\n\n";
  for (const TrainerCommand& command : kCommands) {
    absl::StrAppendFormat(&text, "  hyperserve-train %-11s %s\n", Absl(command.name),
                          Absl(command.summary));
  }
  absl::StrAppend(&text,
                  "  hyperserve-train --version\n\n`hyperserve-train COMMAND --help` has the "
                  "options of a command\n");
  return text;
}

std::string Help(const TrainerCommand& command) {
  std::string text =
      absl::StrFormat("hyperserve-train %s --recipe=FILE --models=FOLDER [options]\n%s\n\n",
                      Absl(command.name), Absl(command.summary));
  for (const absl::string_view name : absl::StrSplit(Absl(command.flags), ' ')) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->DefaultValue();
    absl::StrAppendFormat(&text, "  --%-11s %s (default: %s)\n", name, flag->Help(),
                          value.empty() ? "none" : value);
  }
  return text;
}

// An option that was set although the command does not take it; empty: none.
std::string ForeignFlag(const TrainerCommand& command) {
  const std::vector<std::string> taken = absl::StrSplit(Absl(command.flags), ' ');
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    const bool ours = absl::EndsWith(flag->Filename(), "training/main.cc");
    if (!ours || flag->CurrentValue() == flag->DefaultValue()) continue;
    if (std::ranges::find(taken, name) == taken.end()) return std::string(name);
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

// The problem of --device_memory_max; empty: none.
std::string MemoryProblem() {
  const double most = absl::GetFlag(FLAGS_device_memory_max);
  if (!(most >= 0)) {
    return absl::StrCat("--device_memory_max=", most, " is not 0, for no bound, or more bytes");
  }
  if (most == 0 || DeviceName() != "cpu") return "";
  return absl::StrCat("--device_memory_max=", most,
                      " bounds the memory of a GPU, and this runs on the CPU: leave it out");
}

// The problem of the command line; empty: none.
std::string UsageProblem(const std::vector<char*>& words) {
  const std::string command = words.size() > 1 ? words[1] : "";
  const TrainerCommand* known = FindCommand(command);
  if (command.empty()) return absl::StrCat("a command is needed: ", CommandNames());
  if (known == nullptr) {
    return absl::StrCat("no command '", command, "': there are ", CommandNames());
  }
  if (const std::string foreign = ForeignFlag(*known); !foreign.empty()) {
    return absl::StrCat(command, " takes no --", foreign);
  }
  if (const size_t arguments = words.size() - 2; arguments > 0) {
    return absl::StrCat(command, " takes flags only; ", arguments, " given");
  }
  if (absl::GetFlag(FLAGS_recipe).empty()) return command + " takes --recipe=FILE";
  if (absl::GetFlag(FLAGS_models).empty()) return command + " takes --models=FOLDER";
  if (const int threads = absl::GetFlag(FLAGS_threads); threads < 1) {
    return absl::StrCat("--threads=", threads, " is below 1, the least");
  }
  if (const std::string problem = MemoryProblem(); !problem.empty()) return problem;
  if (const int rows = absl::GetFlag(FLAGS_rows); rows < 0) {
    return absl::StrCat("--rows=", rows, " is below 0, which means as many as the recipe has");
  }
  if (const int iterations = absl::GetFlag(FLAGS_iterations); iterations < 0) {
    return absl::StrCat("--iterations=", iterations, " is below 0, which means the recipe's");
  }
  if (const int patience = absl::GetFlag(FLAGS_patience); patience < 0) {
    return absl::StrCat("--patience=", patience, " is below 0, which means the recipe's");
  }
  if (const double seconds = absl::GetFlag(FLAGS_seconds); !(seconds >= 0)) {
    return absl::StrCat("--seconds=", seconds, " is below 0, which means the recipe's");
  }
  if (const double every = absl::GetFlag(FLAGS_checkpoint_every); !(every >= 0)) {
    return absl::StrCat("--checkpoint_every=", every, " is not 0, for none, or more seconds");
  }
  return "";
}

absl::Status RunCommand(const std::string& command) {
  const CommandOptions options{.recipe = absl::GetFlag(FLAGS_recipe),
                               .data = absl::GetFlag(FLAGS_data),
                               .models = absl::GetFlag(FLAGS_models),
                               .out = absl::GetFlag(FLAGS_out),
                               .device = DeviceName(),
                               .device_memory_max = absl::GetFlag(FLAGS_device_memory_max),
                               .threads = absl::GetFlag(FLAGS_threads),
                               .iterations = absl::GetFlag(FLAGS_iterations),
                               .patience = absl::GetFlag(FLAGS_patience),
                               .seconds = absl::GetFlag(FLAGS_seconds),
                               .from = absl::GetFlag(FLAGS_from),
                               .evaluations = absl::GetFlag(FLAGS_evaluations),
                               .join = absl::GetFlag(FLAGS_join),
                               .picture = absl::GetFlag(FLAGS_picture),
                               .html = absl::GetFlag(FLAGS_html),
                               .rows = absl::GetFlag(FLAGS_rows),
                               .allow_code = absl::GetFlag(FLAGS_allow_code),
                               .resume = absl::GetFlag(FLAGS_resume),
                               .checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every),
                               .curve = absl::GetFlag(FLAGS_curve),
                               .replace = absl::GetFlag(FLAGS_replace),
                               .measured = absl::GetFlag(FLAGS_measured),
                               .renew = absl::GetFlag(FLAGS_renew)};
  return WithMemoryAdvice(FindCommand(command)->run(options), options.device_memory_max);
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-help" || word == "-h" || (i == 1 && word == "help")) {
      const TrainerCommand* command = FindCommand(argv[1]);
      std::fputs((command == nullptr ? Help() : Help(*command)).c_str(), stdout);
      return 0;
    }
  }
  const std::vector<char*> words = ParseFlags("hyperserve-train", argc, argv);
  if (const std::string problem = UsageProblem(words); !problem.empty()) {
    const TrainerCommand* command = words.size() > 1 ? FindCommand(words[1]) : nullptr;
    std::fprintf(stderr, "hyperserve-train: %s\nsee `hyperserve-train %s--help`\n", problem.c_str(),
                 command == nullptr ? "" : absl::StrCat(Absl(command->name), " ").c_str());
    return kUsageExitCode;
  }
  StopOnSignals();
  const absl::Status status = RunCommand(words[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperserve-train: %s\n", std::string(status.message()).c_str());
  return absl::IsCancelled(status) && StopRequested() ? StopExitCode() : 1;
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::HoldStandardStreams();
  hyperserve::SetUpNumerics();
  return hyperserve::Main(argc, argv);
}
