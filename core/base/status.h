// Status values instead of exceptions: macros that return a failure to the caller, and the only
// function that turns an exception of a library into a Status. Every file of ours may include this
// header; it includes none of ours.
//
// Codes follow the table of the wire (docs/ARCHITECTURE.md): kInvalidArgument where every server
// would refuse the input, kFailedPrecondition where a file does not fit the model, kInternal for
// faults of our own.
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

// Evaluates the expression once; returns its Status from the calling function unless it is OK.
#define HS_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (absl::Status hs_status = (expression); !hs_status.ok()) { \
      return hs_status;                                           \
    }                                                             \
  } while (false)

// HS_ASSIGN_OR_RETURN(auto value, MakesStatusOr()) assigns the value, or returns the failure from
// the calling function. It expands to several statements: braces are needed after `if` and `for`.
#define HS_ASSIGN_OR_RETURN(target, expression) \
  HS_ASSIGN_OR_RETURN_INNER(HS_CONCAT(hs_status_or_, __LINE__), target, expression)
#define HS_ASSIGN_OR_RETURN_INNER(holder, target, expression) \
  auto holder = (expression);                                 \
  if (!holder.ok()) return holder.status();                   \
  target = *std::move(holder)

namespace hyperserve {

// The same characters as Abseil's string_view. Debian's Abseil has a type of its own, and StrCat
// and other functions of Abseil take only that one. The text must outlive the result.
inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// Puts `context` before the message: "model 'fashion': weights.safetensors: ...". The code stays
// the same, payloads are dropped, and OK stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Absl(context), ": ", status.message()));
}

// Runs `body`, which returns absl::Status or absl::StatusOr<T>. A std::exception that leaves it,
// such as LibTorch's, becomes kInternal with `what` before its message: "solving a batch: ...". No
// other code in the project catches exceptions of a library.
template <class Body>
auto CatchExceptions(std::string_view what, Body&& body) -> std::invoke_result_t<Body> {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(Absl(what), ": ", error.what()));
  }
}

}  // namespace hyperserve
