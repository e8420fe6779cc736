// Status values instead of exceptions: the macros that pass a failure on, and the one place that
// turns a library's exception into a Status. Everything of ours may include this; it includes
// nothing of ours.
//
// Codes follow the wire's table (docs/ARCHITECTURE.md): kInvalidArgument for what is wrong for
// every server, kFailedPrecondition for an artefact that does not fit, kInternal for our own
// faults.
#pragma once

#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#define HS_CONCAT_INNER(a, b) a##b
#define HS_CONCAT(a, b) HS_CONCAT_INNER(a, b)

// Returns from the calling function when the expression's Status is not OK.
#define HS_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (absl::Status hs_status = (expression); !hs_status.ok()) { \
      return hs_status;                                           \
    }                                                             \
  } while (false)

// HS_ASSIGN_OR_RETURN(auto value, MakesStatusOr()): the value, or a return of the failure.
#define HS_ASSIGN_OR_RETURN(target, expression) \
  HS_ASSIGN_OR_RETURN_INNER(HS_CONCAT(hs_status_or_, __LINE__), target, expression)
#define HS_ASSIGN_OR_RETURN_INNER(holder, target, expression) \
  auto holder = (expression);                                 \
  if (!holder.ok()) return holder.status();                   \
  target = *std::move(holder)

namespace hyperserve {

// This Abseil's string_view is a type of its own: the same characters, for StrCat and its kin.
inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// The status with `context` put before its message: "model 'fashion': weights.safetensors: ...". OK
// stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Absl(context), ": ", status.message()));
}

// Runs `body` (returning absl::Status or absl::StatusOr<T>) and turns any std::exception that
// leaves it, LibTorch's included, into kInternal with `what` it was doing. The only catch of a
// library's exceptions in the project.
template <class Body>
auto CatchExceptions(std::string_view what, Body&& body) -> std::invoke_result_t<Body> {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(Absl(what), ": ", error.what()));
  }
}

}  // namespace hyperserve
