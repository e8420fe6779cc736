#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/session.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

bool Print(const std::string& service, HealthState state, OutputFormat format) {
  const std::string name(HealthStateName(state));
  if (format == OutputFormat::kJson) {
    JsonWriter json;
    json.BeginObject().Field("service", service).Field("status", name).EndObject();
    return PrintOut(json.Take() + "\n");
  }
  return PrintOut(absl::StrCat(service.empty() ? "daemon" : service, ": ", name, "\n"));
}

}  // namespace

absl::StatusOr<int64_t> RunHealth(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  const std::string service = arguments.empty() ? "" : arguments[0];
  Client client(ClientOptionsFromFlags());
  if (absl::GetFlag(FLAGS_watch)) {
    const absl::Status status =
        client.WatchHealth(service, DeadlineFromFlags(),
                           [&](HealthState state) { return Print(service, state, format); });
    if (status.code() != absl::StatusCode::kDeadlineExceeded) return status;
    return 0;  // --timeout is the time to watch
  }
  HS_ASSIGN_OR_RETURN(const HealthState state, client.CheckHealth(service, DeadlineFromFlags()));
  Print(service, state, format);
  if (state == HealthState::kServing) return 0;
  return absl::UnavailableError("it is there, but does not serve");
}

}  // namespace hyperserve
