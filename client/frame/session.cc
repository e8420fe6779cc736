#include "client/frame/session.h"

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/deadline.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/rows.h"
#include "client/retry.h"
#include "client/wire_tensor.h"
#include "core/base/status.h"
#include "core/io/rows.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

// Below the client's own limit, to leave room for the other fields of the reply.
constexpr int64_t kReplyBytesMax = 48 << 20;

// CheckFlags has looked at the name.
v1::Dtype ReplyDtypeFromFlags() {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  (void)v1::Dtype_Parse(absl::StrCat("DTYPE_", absl::GetFlag(FLAGS_reply_dtype)), &dtype);
  return dtype;
}

// Numbers are one row for all rows, F64 [1, numbers]. Else `said` is a file with one row, or one
// for each of `rows`, of this shape.
absl::StatusOr<HostTensor> ReadRowTerms(std::string_view flag, const std::string& said,
                                        const Shape& shape, int64_t rows) {
  const absl::StatusOr<std::vector<double>> numbers = ParseNumbers(flag, said);
  if (numbers.ok()) {
    HostTensor one = HostTensor::Zeros(Dtype::kF64, {1, std::ssize(*numbers)});
    std::ranges::copy(*numbers, one.as<double>().begin());
    return one;
  }
  HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(said, /*tensor_name=*/""));
  HS_ASSIGN_OR_RETURN(const HostTensor found, FitInput(std::move(file), shape, /*limit=*/0));
  const int64_t there = found.shape[0];
  if (there == 1 || there == rows) return ConvertedTo(found.view(), Dtype::kF64);
  return FileError(absl::InvalidArgumentError(
      absl::StrCat(said, ": ", there, " rows of --", Absl(flag), " for ", rows,
                   " rows; one for each is wanted, or one for all")));
}

}  // namespace

absl::StatusOr<OutputFormat> FormatFromFlags() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format == "table") return OutputFormat::kTable;
  if (format == "json") return OutputFormat::kJson;
  return UsageError(absl::StrCat("--format=", format, ": there are table and json"));
}

absl::Status CheckNoInput() {
  if (const int64_t limit = absl::GetFlag(FLAGS_limit); limit != 0) {
    return UsageError(absl::StrCat("--limit=", limit, " cuts INPUT, and none is given: --rows=",
                                   limit, " draws so many samples"));
  }
  if (const std::string tensor = absl::GetFlag(FLAGS_tensor); !tensor.empty()) {
    return UsageError(
        absl::StrCat("--tensor=", tensor, " names a part of INPUT, and none is given"));
  }
  return absl::OkStatus();
}

ClientOptions ClientOptionsFromFlags() {
  return {.address = absl::GetFlag(FLAGS_address),
          .admin_address = absl::GetFlag(FLAGS_admin_address),
          .retry = {.attempts_max_full = kUntilTheDeadline}};
}

Deadline DeadlineFromFlags() {
  return Deadline::In(absl::ToChronoNanoseconds(absl::GetFlag(FLAGS_timeout)));
}

absl::StatusOr<v1::GetModelReply> ChooseModel(Client& client) {
  std::string name = absl::GetFlag(FLAGS_model);
  if (name.empty()) {
    HS_ASSIGN_OR_RETURN(const v1::ListModelsReply list, client.ListModels(DeadlineFromFlags()));
    if (list.models_size() != 1) {
      const auto append = [](std::string* out, const v1::ModelSummary& model) {
        out->append(model.name());
      };
      return UsageError(absl::StrCat("--model is needed: the daemon serves ",
                                     absl::StrJoin(list.models(), ", ", append)));
    }
    name = list.models(0).name();
  }
  return client.GetModel(name, DeadlineFromFlags());
}

Shape InputShape(const v1::GetModelReply& model) {
  const auto& shape = model.model().input_shape();
  return {shape.begin(), shape.end()};
}

Shape StateShape(const v1::GetModelReply& model) {
  return {model.state_shape().begin(), model.state_shape().end()};
}

bool IsFlow(const v1::GetModelReply& model) { return model.model().kind() == "flow"; }
bool IsClassifier(const v1::GetModelReply& model) { return model.model().kind() == "classifier"; }

int64_t StatesBytes(const v1::GetModelReply& model, int64_t saved_depths) {
  const int64_t numbers = ElementCount(StateShape(model)).value_or(1);
  return numbers * static_cast<int64_t>(sizeof(double)) * (1 + saved_depths);
}

std::vector<std::string> CoordinateNames(int64_t dimensions, std::string_view letter) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < dimensions; ++i) names.push_back(absl::StrCat(Absl(letter), i));
  return names;
}

absl::StatusOr<Plan> PlanFromText(std::string_view flag, std::string_view text) {
  absl::StatusOr<Plan> plan = ParsePlan(text);
  if (plan.ok()) return plan;
  return UsageError(absl::StrCat("--", Absl(flag), ": ", plan.status().message()));
}

v1::SolveOptions SolveOptionsFromFlags(const v1::GetModelReply& model, const Plan& plan,
                                       int64_t reply_bytes) {
  v1::SolveOptions options;
  options.set_model(model.model().name());
  options.mutable_plan()->set_text(PrintPlan(plan));
  options.set_max_steps(absl::GetFlag(FLAGS_max_steps));
  options.set_generation(absl::GetFlag(FLAGS_generation));
  options.set_want_error_bound(absl::GetFlag(FLAGS_error_bound));
  options.set_probes(absl::GetFlag(FLAGS_probes));
  options.set_probe_seed(absl::GetFlag(FLAGS_probe_seed));
  options.set_request_id(absl::GetFlag(FLAGS_request_id));
  options.set_reply_dtype(ReplyDtypeFromFlags());
  if (reply_bytes > kReplyBytesUnasked) options.set_max_reply_bytes(kReplyBytesMax);
  return options;
}

absl::StatusOr<RowTerms> RowTermsFromFlags(const v1::GetModelReply& model, const Plan& plan,
                                           int64_t rows) {
  RowTerms terms;
  const auto& wanted = model.model().condition_shape();
  const Shape shape = {wanted.begin(), wanted.end()};
  if (const std::string said = absl::GetFlag(FLAGS_condition); !said.empty()) {
    if (shape.empty()) {
      return UsageError(
          absl::StrCat("--condition=", said, ": model ", model.model().name(), " has none"));
    }
    HS_ASSIGN_OR_RETURN(terms.condition, ReadRowTerms("condition", said, shape, rows));
    if (terms.condition.shape[1] != shape[0]) {
      return UsageError(absl::StrCat("--condition=", said, ": ", terms.condition.shape[1], " of ",
                                     shape[0], " numbers"));
    }
    terms.condition = ForTier(terms.condition, plan.tier);
  }
  if (const std::string said = absl::GetFlag(FLAGS_guidance); !said.empty()) {
    HS_ASSIGN_OR_RETURN(terms.guidance, ReadRowTerms("guidance", said, {1}, rows));
  }
  return terms;
}

void SetRowTerms(const RowTerms& terms, int64_t begin, int64_t rows, v1::SolveOptions& options) {
  const auto part = [&](const HostTensor& all) {
    return ToWire(all.shape[0] == 1 ? all.view() : RowsOf(all.view(), begin, rows));
  };
  if (!terms.condition.shape.empty()) *options.mutable_condition() = part(terms.condition);
  if (!terms.guidance.shape.empty()) *options.mutable_guidance() = part(terms.guidance);
}

int64_t RowsPerRequest(int64_t row_bytes) {
  return std::clamp<int64_t>(kReplyBytesMax / 2 / std::max<int64_t>(row_bytes, 1), 1,
                             absl::GetFlag(FLAGS_batch));
}

std::string RequestIdOfSlice(int64_t slice, int64_t slices) {
  const std::string id = absl::GetFlag(FLAGS_request_id);
  return id.empty() || slices == 1 ? id : absl::StrCat(id, ":", slice);
}

}  // namespace hyperserve
