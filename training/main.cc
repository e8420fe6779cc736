
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/engine.h"
#include "training/commands.h"
#include "training/progress.h"
#include "training/publish.h"

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
ABSL_FLAG(std::string, from, "", "hypersolver: generation folder whose weights it starts from");
ABSL_FLAG(std::string, picture, "", "calibrate: PNG of error against NFE and MACs, by gnuplot");
ABSL_FLAG(std::string, to, "", "publish: Admin address of a running daemon, HOST:PORT");
ABSL_FLAG(std::string, to_folder, "", "publish: model repository");
ABSL_FLAG(std::string, model, "", "publish: the model's name");
ABSL_FLAG(int64_t, parent, -1,
          "publish: the generation that this one follows (0: none); refused when it is no longer "
          "active. -1: whatever is active");
ABSL_FLAG(absl::Duration, deadline, absl::Seconds(60), "publish: when to give up");

namespace hyperserve {
namespace {

constexpr int kUsageError = 2, kInterrupted = 130;

std::string DeviceName() {
  const std::string name = absl::GetFlag(FLAGS_device);
  if (name != "auto") return name;
  std::string found = "cpu";
  for (const DeviceInfo& device : ListDevices()) {
    if (device.name == "cuda:0") found = device.name;
  }
  return found;
}

absl::Status RunCommand(const std::vector<char*>& words) {
  const std::string command = words.size() > 1 ? words[1] : "";
  if (command == "publish") {
    return Publish({.generation = words.size() > 2 ? words[2] : "",
                    .model = absl::GetFlag(FLAGS_model),
                    .admin_address = absl::GetFlag(FLAGS_to),
                    .to_folder = absl::GetFlag(FLAGS_to_folder),
                    .parent = absl::GetFlag(FLAGS_parent),
                    .deadline = absl::GetFlag(FLAGS_deadline)});
  }
  const CommandOptions options{.recipe = absl::GetFlag(FLAGS_recipe),
                               .data = absl::GetFlag(FLAGS_data),
                               .models = absl::GetFlag(FLAGS_models),
                               .out = absl::GetFlag(FLAGS_out),
                               .device = DeviceName(),
                               .threads = absl::GetFlag(FLAGS_threads),
                               .iterations = absl::GetFlag(FLAGS_iterations),
                               .from = absl::GetFlag(FLAGS_from),
                               .picture = absl::GetFlag(FLAGS_picture)};
  if (command == "model") return TrainModel(options);
  if (command == "hypersolver") return TrainHypersolver(options);
  if (command == "calibrate") return Calibrate(options);
  return absl::UnimplementedError(
      "hyperserve-train model|hypersolver|calibrate --recipe=FILE --models=FOLDER, or publish; "
      "--help lists the flags");
}

}  // namespace
}  // namespace hyperserve

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  absl::SetProgramUsageMessage(
      "trains models and their corrections\n"
      "  hyperserve-train model       --recipe=FILE --models=FOLDER [--data=FOLDER]\n"
      "  hyperserve-train hypersolver --recipe=FILE --models=FOLDER [--out=FOLDER] "
      "[--from=FOLDER]\n"
      "  hyperserve-train calibrate   --recipe=FILE --models=FOLDER [--picture=FILE]\n"
      "  hyperserve-train publish GENERATION_FOLDER --model=NAME "
      "--to=HOST:PORT|--to_folder=FOLDER");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  struct sigaction stop = {};
  stop.sa_handler = [](int) { hyperserve::RequestStop(); };
  stop.sa_flags = SA_RESETHAND;  // a second Ctrl-C ends the program at once
  sigaction(SIGINT, &stop, nullptr);
  sigaction(SIGTERM, &stop, nullptr);
  const absl::Status status = hyperserve::RunCommand(words);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperserve-train: %s\n", std::string(status.message()).c_str());
  if (absl::IsCancelled(status) && hyperserve::StopRequested()) return hyperserve::kInterrupted;
  return absl::IsUnimplemented(status) ? hyperserve::kUsageError : 1;
}
