#include <string>

#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/session.h"
#include "core/base/status.h"
#include "hyperserve/v1/admin.pb.h"

namespace hyperserve {

absl::StatusOr<int64_t> RunLoad(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  v1::LoadModelRequest request;
  request.set_model(arguments[0]);
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const auto reply, client.LoadModel(request, DeadlineFromFlags()));
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject().Field("model", arguments[0]).Field("base_digest", reply.base_digest());
    PrintOut(json.EndObject().Take() + "\n");
  } else {
    PrintOut(absl::StrCat(arguments[0], " is served, base ", reply.base_digest(), "\n"));
  }
  return 0;
}

absl::StatusOr<int64_t> RunUnload(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  v1::UnloadModelRequest request;
  request.set_model(arguments[0]);
  Client client(ClientOptionsFromFlags());
  HS_RETURN_IF_ERROR(client.UnloadModel(request, DeadlineFromFlags()).status());
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject().Field("model", arguments[0]).Field("unloaded", true);
    PrintOut(json.EndObject().Take() + "\n");
  } else {
    PrintOut(absl::StrCat(arguments[0], " is no longer served; `load` brings it back\n"));
  }
  return 0;
}

}  // namespace hyperserve
