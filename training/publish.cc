#include "training/publish.h"

#include "absl/strings/str_format.h"
#include "client/client.h"
#include "core/base/status.h"
#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/proto_json.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

absl::StatusOr<std::string> MethodOf(const GenerationFiles& files) {
  v1::HypersolverSpec spec;
  HS_RETURN_IF_ERROR(ParseProtoJson(files.at("hypersolver.json"), &spec));
  return spec.method();
}

absl::Status PublishToDaemon(const PublishOptions& options, const GenerationFiles& files,
                             const std::string& method) {
  v1::PublishHypersolverRequest request;
  request.set_model(options.model);
  request.set_method(method);
  if (options.parent >= 0) request.set_parent_generation(options.parent);
  for (const auto& [name, content] : files) {
    v1::NamedFile& file = *request.add_files();
    file.set_name(name);
    file.set_content(content);
  }
  Client client({.admin_address = options.admin_address});
  HS_ASSIGN_OR_RETURN(
      const v1::PublishHypersolverReply reply,
      client.Publish(request, Deadline::In(absl::ToChronoNanoseconds(options.deadline))));
  for (const v1::GateResult& gate : reply.gate()) {
    absl::PrintF("gate at K = %d: candidate %.3e, active %.3e, base %.3e\n", gate.steps(),
                 gate.candidate_error(), gate.active_error(), gate.base_error());
  }
  absl::PrintF("%s hyper_%s: generation %d is served (before: %d), in %.2f s\n", options.model,
               method, reply.generation(), reply.previous_generation(), reply.seconds());
  return absl::OkStatus();
}

// The daemon's gate judges what it finds in a folder; what can be checked without it is checked
// here.
absl::Status PublishToFolder(const PublishOptions& options, const GenerationFiles& files,
                             const std::string& method) {
  const std::string model_folder = options.to_folder + "/" + options.model;
  HS_ASSIGN_OR_RETURN(const auto model, Model::Load(model_folder));
  HS_ASSIGN_OR_RETURN(const auto correction,
                      Hypersolver::FromBytes(files.at("hypersolver.json"),
                                             files.at("weights.safetensors"), *model));
  const std::string folder = HypersolverFolder(model_folder, correction->spec().method);
  HS_ASSIGN_OR_RETURN(const int64_t generation, WriteGeneration(folder, files));
  absl::PrintF(
      "%s hyper_%s: written as generation %d; a daemon's gate judges it when it looks\n"
      "%s/%d\n",
      options.model, method, generation, folder, generation);
  return absl::OkStatus();
}

}  // namespace

absl::Status Publish(const PublishOptions& options) {
  if (options.generation.empty() || options.model.empty() ||
      options.admin_address.empty() == options.to_folder.empty()) {
    return absl::InvalidArgumentError(
        "publish GENERATION_FOLDER --model=NAME and either --to=HOST:PORT or --to_folder=FOLDER");
  }
  HS_RETURN_IF_ERROR(CheckName(options.model));
  HS_ASSIGN_OR_RETURN(const GenerationFiles files, ReadGeneration(options.generation));
  HS_ASSIGN_OR_RETURN(const std::string method, MethodOf(files));
  return options.to_folder.empty() ? PublishToDaemon(options, files, method)
                                   : PublishToFolder(options, files, method);
}

}  // namespace hyperserve
