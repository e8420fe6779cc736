#include <string>
#include <vector>

#include "client/command/commands.h"
#include "client/frame/command.h"

namespace {

using hyperserve::Command;

constexpr Command kCommands[] = {
    {.name = "classify",
     .arguments = "INPUT",
     .summary = "labels of images: a file of NPY, safetensors, IDX or CSV, or - for stdin",
     .flags = "model plan condition guidance limit labels top_k probabilities logits batch "
              "concurrency tensor "
              "reply_dtype error_bound generation max_steps request_id",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunClassify},
    {.name = "sample",
     .summary = "samples of a flow, as text or to a .csv, .safetensors or .png",
     .flags = "model plan condition guidance rows seed first_row log_density probes probe_seed out "
              "reply_dtype "
              "error_bound "
              "generation max_steps "
              "request_id",
     .run = hyperserve::RunSample},
    {.name = "log-prob",
     .arguments = "INPUT",
     .summary = "log-density of points under a flow: a file as for classify",
     .flags = "model plan condition guidance probes probe_seed limit batch concurrency tensor "
              "generation max_steps request_id",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunLogProb},
    {.name = "solve",
     .arguments = "INPUT",
     .summary = "outputs of a regressor, states of a trajectory or of any initial value problem",
     .flags = "model plan condition guidance state span save_at partial_states direction out limit "
              "batch "
              "concurrency "
              "tensor reply_dtype error_bound generation max_steps request_id",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunSolve},
    {.name = "compare",
     .arguments = "[INPUT]",
     .summary = "error and cost of several plans on one's own rows (flows: on samples)",
     .flags = "model plans reference condition guidance limit labels rows seed first_row batch "
              "concurrency "
              "tensor generation max_steps request_id",
     .arguments_max = 1,
     .run = hyperserve::RunCompare},
    {.name = "models",
     .arguments = "[NAME]",
     .summary = "what is served; with a name, its plans with measured error and cost",
     .arguments_max = 1,
     .run = hyperserve::RunModels},
    {.name = "publish",
     .arguments = "FOLDER",
     .summary = "offer a correction (the folder of a generation) to the running daemon",
     .flags = "admin_address model method parent_generation allow_narrower",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunPublish},
    {.name = "rollback",
     .summary = "serve the previous generation again, or the one of --generation",
     .flags = "admin_address model method generation",
     .run = hyperserve::RunRollback},
    {.name = "load",
     .arguments = "NAME",
     .summary = "load a new or changed model of the daemon's repository",
     .flags = "admin_address",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunLoad},
    {.name = "unload",
     .arguments = "NAME",
     .summary = "take a model out of the daemon until `load` or a restart",
     .flags = "admin_address",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = hyperserve::RunUnload},
    {.name = "watch",
     .summary = "what is served, then each change of it until --timeout",
     .flags = "admin_address",
     .run = hyperserve::RunWatch},
    {.name = "health",
     .arguments = "[SERVICE]",
     .summary = "health of the daemon, or of model/NAME",
     .flags = "watch",
     .arguments_max = 1,
     .run = hyperserve::RunHealth},
    {.name = "bench",
     .arguments = "[INPUT]",
     .summary = "closed loop of requests: rate, percentiles, errors by code",
     .flags = "model plan condition guidance rows seed concurrency duration count json_lines "
              "tensor limit generation "
              "max_steps request_id",
     .arguments_max = 1,
     .run = hyperserve::RunBench},
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return hyperserve::RunProgram(kCommands, words);
}
