#include <string>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/session.h"
#include "core/base/status.h"
#include "hyperserve/v1/admin.pb.h"

namespace hyperserve {
namespace {

std::string Line(const v1::WatchModelsReply& event, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject().Field("model", event.model()).Field("event", event.event());
    if (!event.method().empty()) {
      json.Field("method", event.method()).Field("generation", event.generation());
    }
    if (!event.source().empty()) json.Field("source", event.source());
    return json.EndObject().Take() + "\n";
  }
  std::string line = event.model();
  if (!event.method().empty()) {
    absl::StrAppend(&line, " ", event.method(), " generation ", event.generation());
  }
  absl::StrAppend(&line, ": ", event.event());
  if (!event.source().empty()) absl::StrAppend(&line, " (", event.source(), ")");
  return line + "\n";
}

}  // namespace

absl::StatusOr<int64_t> RunWatch(const Arguments&) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  Client client(ClientOptionsFromFlags());
  const absl::Status status = client.WatchModels(
      DeadlineFromFlags(),
      [&](const v1::WatchModelsReply& event) { return PrintOut(Line(event, format)); });
  if (status.code() != absl::StatusCode::kDeadlineExceeded) return status;
  return 0;  // --timeout is the time to watch
}

}  // namespace hyperserve
