// What the commands share: the client and the options of a call as the flags ask for them.
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

enum class OutputFormat { kTable, kJson };
absl::StatusOr<OutputFormat> FormatFromFlags();

// A usage error for options that say what to take of INPUT: a command that draws samples instead
// would ignore them.
absl::Status CheckNoInput();

ClientOptions ClientOptionsFromFlags();
Deadline DeadlineFromFlags();  // of one call that starts now

// The model of --model, or the only one that is served.
absl::StatusOr<v1::GetModelReply> ChooseModel(Client& client);
Shape InputShape(const v1::GetModelReply& model);
Shape StateShape(const v1::GetModelReply& model);
bool IsFlow(const v1::GetModelReply& model);
// Names of a flow's coordinates: "x0,x1".
std::vector<std::string> CoordinateNames(int64_t dimensions);

// --plan, read and checked here, so that a slip costs no call; a usage error says what would be
// right.
absl::StatusOr<Plan> PlanFromText(std::string_view flag, std::string_view text);

// Up to here a reply passes without raising the request's max_reply_bytes: the server's default
// less room for the reply's other fields.
inline constexpr int64_t kReplyBytesUnasked = 3 << 20;

// Model, plan, pins and limits of the flags; max_reply_bytes is raised where a reply of about
// `reply_bytes` needs it.
v1::SolveOptions SolveOptionsFromFlags(const v1::GetModelReply& model, const Plan& plan,
                                       int64_t reply_bytes = 0);

// Rows of one request: --batch, or fewer where a reply of `row_bytes` a row would pass what the
// client receives.
int64_t RowsPerRequest(int64_t row_bytes);

// Appends ": slice" where one request id must name several requests.
std::string RequestIdOfSlice(int64_t slice, int64_t slices);

}  // namespace hyperserve
