#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/session.h"
#include "client/frame/table.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/model.pb.h"

namespace hyperserve {
namespace {

constexpr int64_t kFileBytesMax = 64 << 20;  // the daemon's limit for one message

// Every file of the folder.
absl::StatusOr<v1::PublishHypersolverRequest> ReadGenerationFolder(const std::string& folder) {
  v1::PublishHypersolverRequest request;
  std::error_code error;
  namespace fs = std::filesystem;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::directory_entry& entry = *it;
    std::error_code unreadable;
    if (!entry.is_regular_file(unreadable)) continue;
    HS_ASSIGN_OR_RETURN(std::string content, ReadFile(entry.path().string(), kFileBytesMax));
    v1::NamedFile& file = *request.add_files();
    file.set_name(entry.path().filename().string());
    file.set_content(std::move(content));
  }
  if (error) return FileError(absl::NotFoundError(absl::StrCat(folder, ": ", error.message())));
  return request;
}

// The method that hypersolver.json names.
absl::StatusOr<std::string> MethodOf(const v1::PublishHypersolverRequest& request) {
  for (const v1::NamedFile& file : request.files()) {
    if (file.name() != "hypersolver.json") continue;
    v1::HypersolverSpec spec;
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;  // the daemon checks the file; only `method` is read here
    const auto parsed = google::protobuf::util::JsonStringToMessage(file.content(), &spec, options);
    if (parsed.ok() && !spec.method().empty()) return spec.method();
    return FileError(absl::InvalidArgumentError("hypersolver.json names no method: give --method"));
  }
  return FileError(absl::NotFoundError(
      "the folder holds no hypersolver.json: it is not that of a generation, as "
      "`hyperserve-train hypersolver` prints it"));
}

void WriteGenerations(int64_t generation, int64_t previous, JsonWriter& json) {
  json.Field("generation", generation).Field("previous_generation", previous);
}

void PrintPublished(const v1::PublishHypersolverReply& reply, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject();
    WriteGenerations(reply.generation(), reply.previous_generation(), json);
    json.Field("seconds", reply.seconds()).Key("gate").BeginArray();
    for (const v1::GateResult& result : reply.gate()) {
      json.BeginObject().Field("steps", result.steps()).Field("claimed", result.claimed());
      json.Field("candidate_error", result.candidate_error());
      json.Field("active_error", result.active_error());
      json.Field("base_error", result.base_error()).EndObject();
    }
    json.EndArray().EndObject();
    PrintOut(json.Take() + "\n");
    return;
  }
  TextTable table({"K", "candidate error", "active error", "base error"});
  for (const v1::GateResult& result : reply.gate()) {
    table.Add({absl::StrCat(result.steps()), ShortNumber(result.candidate_error()),
               ShortNumber(result.active_error()), ShortNumber(result.base_error())});
  }
  PrintOut(absl::StrFormat("%sgeneration %d is served (before: %d), after %.2f s\n", table.Print(),
                           reply.generation(), reply.previous_generation(), reply.seconds()));
}

}  // namespace

absl::StatusOr<int64_t> RunPublish(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  if (absl::GetFlag(FLAGS_model).empty()) return UsageError("publish takes --model=NAME");
  HS_ASSIGN_OR_RETURN(v1::PublishHypersolverRequest request, ReadGenerationFolder(arguments[0]));
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_method(absl::GetFlag(FLAGS_method));
  if (request.method().empty()) {
    HS_ASSIGN_OR_RETURN(*request.mutable_method(), MethodOf(request));
  }
  if (absl::GetFlag(FLAGS_parent_generation) >= 0) {
    request.set_parent_generation(absl::GetFlag(FLAGS_parent_generation));
  }
  request.set_allow_narrower(absl::GetFlag(FLAGS_allow_narrower));
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const auto reply, client.Publish(request, DeadlineFromFlags()));
  PrintPublished(reply, format);
  return 0;
}

absl::StatusOr<int64_t> RunRollback(const Arguments&) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  v1::RollbackHypersolverRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_method(absl::GetFlag(FLAGS_method));
  request.set_generation(absl::GetFlag(FLAGS_generation));
  if (request.model().empty() || request.method().empty()) {
    return UsageError("rollback takes --model=NAME and --method=METHOD");
  }
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const auto reply, client.Rollback(request, DeadlineFromFlags()));
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject();
    WriteGenerations(reply.generation(), reply.previous_generation(), json);
    PrintOut(json.EndObject().Take() + "\n");
  } else {
    PrintOut(absl::StrFormat("generation %d is served (before: %d)\n", reply.generation(),
                             reply.previous_generation()));
  }
  return 0;
}

}  // namespace hyperserve
