#include "client/frame/failure.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr char kUsagePayload[] = "hyperserve/usage";
constexpr char kWayOutPayload[] = "hyperserve/way_out";  // replaces the advice for the code

std::string_view WhatToDo(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return "correct the request; it would fail on every server";
    case absl::StatusCode::kNotFound:
      return "see what is there with `hyperserve-client models`";
    case absl::StatusCode::kFailedPrecondition:
      return "the message says what does not fit: choose another plan, correction or repository";
    case absl::StatusCode::kAborted:
      return "another generation became active meanwhile: make the candidate anew from it, or "
             "publish without --parent_generation";
    case absl::StatusCode::kResourceExhausted:
      return "the daemon is full: raise --timeout, try again later, send less at a time, or raise "
             "the daemon's limits";
    case absl::StatusCode::kDeadlineExceeded:
      return "raise --timeout, send fewer rows at a time (--batch), or choose a cheaper plan";
    case absl::StatusCode::kUnavailable:
      return "check that the daemon runs and --address (publish, rollback, load, unload, watch: "
             "--admin_address) is "
             "right; if it is draining or loading, try again later";
    case absl::StatusCode::kUnimplemented:
      return "this daemon cannot do it; the message says what is missing";
    case absl::StatusCode::kInternal:
      return "this is a fault of Hyperserve: look for the request in the daemon's log";
    default:
      return "look for the request in the daemon's log";
  }
}

}  // namespace

absl::Status UsageError(std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(Absl(message));
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsagePayload).has_value();
}

absl::Status WithWayOut(absl::Status status, std::string_view way_out) {
  status.SetPayload(kWayOutPayload, absl::Cord(Absl(way_out)));
  return status;
}

absl::Status FileError(absl::Status status) {
  return WithWayOut(std::move(status), "correct the file or name another one");
}

std::string ExplainFailure(const absl::Status& status) {
  const auto own = status.GetPayload(kWayOutPayload);
  const std::string way_out = own ? std::string(*own) : std::string(WhatToDo(status.code()));
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(),
                      "\nwhat to do: ", way_out, "\n");
}

}  // namespace hyperserve
