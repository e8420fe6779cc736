// Clients, deadlines and the options of calls, as the flags ask for them. All commands share these
// functions. They read the flags, so main must have parsed them; any thread may call them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/deadline.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

// For people, or one JSON object for programs.
enum class OutputFormat { kTable, kJson };
absl::StatusOr<OutputFormat> FormatFromFlags();  // a usage error for any other --format

// A usage error for --limit and --tensor, which select parts of INPUT. A command that draws samples
// calls this, since it would ignore them.
absl::Status CheckNoInput();

// A full server is called again until the deadline, since a command has nothing better to do.
ClientOptions ClientOptionsFromFlags();
Deadline DeadlineFromFlags();  // of a call that starts now

// Asks the daemon for the model of --model. Without the option, the only model that is served; a
// usage error where there are several. Fails as the client's calls do.
absl::StatusOr<v1::GetModelReply> ChooseModel(Client& client);
// What the reply says of the model. Pure; an empty shape where the reply says nothing.
Shape InputShape(const v1::GetModelReply& model);
Shape StateShape(const v1::GetModelReply& model);
bool IsFlow(const v1::GetModelReply& model);
bool IsClassifier(const v1::GetModelReply& model);
// Bytes of a row's states in an answer, in double: at the end and at so many saved depths.
int64_t StatesBytes(const v1::GetModelReply& model, int64_t saved_depths);
// Names for the coordinates of a row: "x0", "x1", ...
std::vector<std::string> CoordinateNames(int64_t dimensions, std::string_view letter = "x");

// Parses the plan of an option, so that a mistake costs no call. A usage error names `flag` and
// shows a correct spelling.
absl::StatusOr<Plan> PlanFromText(std::string_view flag, std::string_view text);

// The largest tensor that a reply holds without a raised max_reply_bytes: the server's default less
// room for the other fields.
inline constexpr int64_t kReplyBytesUnasked = 3 << 20;

// The model, the plan, and the generation, limits and request id of the flags. Raises
// max_reply_bytes where a reply of about `reply_bytes` needs it.
v1::SolveOptions SolveOptionsFromFlags(const v1::GetModelReply& model, const Plan& plan,
                                       int64_t reply_bytes = 0);

// What rows bring beside their start, one row for each or one for all: the conditions of
// --condition, [.., features] in the dtype of the plan's tier, and the weights of --guidance, F64
// [.., weights]. Without dimensions where there is no option.
struct RowTerms {
  HostTensor condition, guidance;
};
// A usage error or a FileError where the model has no condition or one of another shape, or where a
// file has other than `rows` rows.
absl::StatusOr<RowTerms> RowTermsFromFlags(const v1::GetModelReply& model, const Plan& plan,
                                           int64_t rows);
// Those of rows [begin, begin + rows) into a request.
void SetRowTerms(const RowTerms& terms, int64_t begin, int64_t rows, v1::SolveOptions& options);

// The rows of one request: --batch, or fewer where the reply, with `row_bytes` for each row, would
// exceed the client's limit. At least 1.
int64_t RowsPerRequest(int64_t row_bytes);

// The request id of one slice: --request_id, with ":<slice>" where there are several slices.
std::string RequestIdOfSlice(int64_t slice, int64_t slices);

}  // namespace hyperserve
