#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "client/command/commands.h"
#include "client/frame/command.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"
#include "client/frame/json_writer.h"
#include "client/frame/output.h"
#include "client/frame/rows.h"
#include "client/frame/session.h"
#include "client/frame/slices.h"
#include "client/frame/solve_ledger.h"
#include "client/frame/table.h"
#include "client/wire_tensor.h"
#include "core/base/status.h"
#include "core/io/rows.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

// The results of one plan for all rows.
struct PlanRun {
  HostTensor state;             // z(s1), or the states of a trajectory; [rows, ...]
  std::vector<int64_t> labels;  // classifiers
  SolveLedger ledger;
};

// The results in one reply.
struct Part {
  HostTensor state;
  std::vector<int64_t> labels;
  v1::SolveInfo info;
};

// The source of the rows. Classify returns labels and z(s1) of a classifier. A flow is sampled,
// from the same noise for every plan; given points, it is solved in the direction of its field, as
// are regressors and trajectories, which are compared by their states on the way.
struct Problem {
  v1::GetModelReply model;
  std::optional<HostTensor> rows;
  int64_t count = 0;
};

absl::StatusOr<Part> Ask(Client& client, const Problem& problem, v1::SolveOptions options,
                         const HostTensor* rows, const Slice& slice) {
  Part part;
  if (rows == nullptr) {
    v1::SampleRequest request;
    *request.mutable_options() = std::move(options);
    request.set_rows(slice.rows());
    request.set_seed(absl::GetFlag(FLAGS_seed));
    request.set_first_row(absl::GetFlag(FLAGS_first_row) + slice.begin);
    HS_ASSIGN_OR_RETURN(const auto reply, client.Sample(std::move(request), DeadlineFromFlags()));
    HS_ASSIGN_OR_RETURN(part.state, FromWire(reply.samples()));
    part.info = reply.info();
  } else if (!IsClassifier(problem.model)) {
    v1::SolveRequest request;
    *request.mutable_options() = std::move(options);
    *request.mutable_inputs() = ToWire(RowsOf(rows->view(), slice.begin, slice.rows()));
    HS_ASSIGN_OR_RETURN(const auto reply, client.Solve(std::move(request), DeadlineFromFlags()));
    HS_ASSIGN_OR_RETURN(part.state, FromWire(reply.has_saved() ? reply.saved() : reply.state()));
    part.info = reply.info();
  } else {
    v1::ClassifyRequest request;
    *request.mutable_options() = std::move(options);
    *request.mutable_inputs() = ToWire(RowsOf(rows->view(), slice.begin, slice.rows()));
    request.mutable_want()->set_labels(true);
    request.mutable_want()->set_state(true);
    HS_ASSIGN_OR_RETURN(const auto reply, client.Classify(std::move(request), DeadlineFromFlags()));
    HS_ASSIGN_OR_RETURN(part.state, FromWire(reply.state()));
    part.labels = {reply.labels().begin(), reply.labels().end()};
    part.info = reply.info();
  }
  return part;
}

absl::StatusOr<PlanRun> Run(Client& client, const Problem& problem, const Plan& plan) {
  const int64_t state_bytes = StatesBytes(problem.model, problem.model.save_at_size());
  const int64_t batch = RowsPerRequest(state_bytes);
  HostTensor converted;
  if (problem.rows) converted = ForTier(*problem.rows, plan.tier);
  HS_ASSIGN_OR_RETURN(const RowTerms terms, RowTermsFromFlags(problem.model, plan, problem.count));
  HS_ASSIGN_OR_RETURN(std::vector<Part> parts,
                      AskInSlices<Part>(PrintPlan(plan), problem.count, batch,
                                        [&](const Slice& slice, const std::string& request_id) {
                                          v1::SolveOptions options = SolveOptionsFromFlags(
                                              problem.model, plan, batch * state_bytes);
                                          if (!plan.hypersolved()) options.clear_generation();
                                          options.set_request_id(request_id);
                                          SetRowTerms(terms, slice.begin, slice.rows(), options);
                                          return Ask(client, problem, std::move(options),
                                                     problem.rows ? &converted : nullptr, slice);
                                        }));
  PlanRun run;
  std::vector<HostTensor> states;
  for (Part& part : parts) {
    run.ledger.Add(part.info, part.state.shape[0]);
    run.labels.insert(run.labels.end(), part.labels.begin(), part.labels.end());
    states.push_back(std::move(part.state));
  }
  run.state = JoinRows(states);
  return run;
}

struct Comparison {
  double error_mean = std::numeric_limits<double>::quiet_NaN();
  double error_max = std::numeric_limits<double>::quiet_NaN();
  double agreement = std::numeric_limits<double>::quiet_NaN();  // classifiers
};

// |dz| / |z| of each row, with z from the reference. Rows that failed in either are left out.
Comparison Compare(const PlanRun& run, const PlanRun& reference) {
  const int64_t rows = run.ledger.rows();
  const int64_t columns = rows == 0 ? 0 : run.state.elements() / rows;
  double error_sum = 0, error_max = 0;
  int64_t counted = 0, agreed = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (!run.ledger.converged(row) || !reference.ledger.converged(row)) continue;
    double difference = 0, size = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      const double wanted = ElementAsDouble(reference.state.view(), i);
      const double delta = ElementAsDouble(run.state.view(), i) - wanted;
      difference += delta * delta;
      size += wanted * wanted;
    }
    const double error = std::sqrt(difference / size);
    error_sum += error;
    error_max = std::max(error_max, error);
    if (!run.labels.empty() && run.labels[row] == reference.labels[row]) ++agreed;
    ++counted;
  }
  if (counted == 0) return {};
  const auto count = static_cast<double>(counted);
  Comparison comparison{.error_mean = error_sum / count, .error_max = error_max};
  if (!run.labels.empty()) comparison.agreement = static_cast<double>(agreed) / count;
  return comparison;
}

absl::StatusOr<std::vector<Plan>> PlansFromFlags() {
  std::vector<Plan> plans;
  HS_ASSIGN_OR_RETURN(Plan reference, PlanFromText("reference", absl::GetFlag(FLAGS_reference)));
  plans.push_back(reference);
  for (absl::string_view text :
       absl::StrSplit(absl::GetFlag(FLAGS_plans), absl::ByAnyChar(" ;"), absl::SkipEmpty())) {
    HS_ASSIGN_OR_RETURN(Plan plan, PlanFromText("plans", {text.data(), text.size()}));
    plans.push_back(plan);
  }
  return plans;
}

// What is compared where --plans is empty: the calibrated plans, of tier exact, which every device
// has.
absl::Status AddCalibrated(const v1::GetModelReply& model, std::vector<Plan>& plans) {
  for (const v1::PlanInfo& info : model.plans()) {
    HS_ASSIGN_OR_RETURN(Plan plan, ParsePlan(info.plan()));
    if (plan.tier == Tier::kExact && plan != plans.front()) plans.push_back(std::move(plan));
  }
  if (plans.size() > 1) return absl::OkStatus();
  return UsageError(absl::StrCat("--plans is needed, since ", model.model().name(),
                                 " has no calibration: \"euler:2 hyper_euler:2 midpoint:1\""));
}

absl::StatusOr<Problem> ProblemFromFlags(Client& client, const Arguments& arguments) {
  Problem problem;
  HS_ASSIGN_OR_RETURN(problem.model, ChooseModel(client));
  if (!arguments.empty()) {
    if (absl::GetFlag(FLAGS_rows) != 1) {
      return UsageError(absl::StrCat("--rows=", absl::GetFlag(FLAGS_rows), " draws samples, but ",
                                     arguments[0], " is given: --limit cuts it"));
    }
    HS_ASSIGN_OR_RETURN(RowsFile file, ReadInput(arguments[0], absl::GetFlag(FLAGS_tensor)));
    HS_ASSIGN_OR_RETURN(problem.rows, FitInput(std::move(file), InputShape(problem.model),
                                               absl::GetFlag(FLAGS_limit)));
    problem.count = problem.rows->shape[0];
    return problem;
  }
  if (!IsFlow(problem.model)) {
    return UsageError(absl::StrCat("compare takes INPUT, the rows of a ",
                                   problem.model.model().kind(), "; only flows can do without"));
  }
  HS_RETURN_IF_ERROR(CheckNoInput());
  problem.count = absl::GetFlag(FLAGS_rows);
  return problem;
}

// Prints the results, as a table or as JSON.
class Report {
 public:
  explicit Report(OutputFormat format)
      : json_format_(format == OutputFormat::kJson),
        table_({"plan", "error", "max", "agree %", "accuracy %", "NFE", "corr.", "MACs",
                "ms/row p50", "gen.", "failed"}) {
    json_.BeginObject();
  }

  void Begin(const Problem& problem, const std::string& reference) {
    json_.Field("model", problem.model.model().name()).Field("rows", problem.count);
    json_.Field("reference", reference).Key("plans").BeginArray();
  }

  void Add(const PlanRun& run, const Comparison& comparison,
           const std::optional<double>& accuracy) {
    const SolveLedger& ledger = run.ledger;
    const int64_t generation = ledger.generations().empty() ? 0 : *ledger.generations().rbegin();
    json_.BeginObject().Field("plan", ledger.plan()).Field("generation", generation);
    json_.Field("error_mean", comparison.error_mean).Field("error_max", comparison.error_max);
    json_.Field("agreement", comparison.agreement);
    if (accuracy) json_.Field("accuracy", *accuracy);
    json_.Field("nfe", ledger.nfe_mean());
    json_.Field("correction_evaluations", ledger.correction_evaluations_mean());
    json_.Field("macs", ledger.macs_mean());
    json_.Field("seconds_per_row_p50", ledger.solve_seconds_per_row_p50());
    json_.Field("rows_failed", ledger.failed_rows()).EndObject();
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    table_.Add({ledger.plan(), ShortNumber(comparison.error_mean),
                ShortNumber(comparison.error_max), ShortNumber(100 * comparison.agreement),
                ShortNumber(100 * accuracy.value_or(kNone)), ShortNumber(ledger.nfe_mean()),
                ShortNumber(ledger.correction_evaluations_mean()), ShortNumber(ledger.macs_mean()),
                ShortNumber(1e3 * ledger.solve_seconds_per_row_p50()), absl::StrCat(generation),
                absl::StrCat(ledger.failed_rows())});
  }

  void Print(int64_t rows) {
    json_.EndArray().EndObject();
    if (json_format_) {
      PrintOut(json_.Take() + "\n");
      return;
    }
    PrintOut(absl::StrCat(table_.Print(), Counted(rows, "row"),
                          "; error: mean over rows of |z - z_ref| / |z_ref| of z(s1), or of a "
                          "trajectory's states, against the first plan\n"));
  }

 private:
  const bool json_format_;
  JsonWriter json_;
  TextTable table_;
};

}  // namespace

absl::StatusOr<int64_t> RunCompare(const Arguments& arguments) {
  HS_ASSIGN_OR_RETURN(const OutputFormat format, FormatFromFlags());
  HS_ASSIGN_OR_RETURN(std::vector<Plan> plans, PlansFromFlags());
  Client client(ClientOptionsFromFlags());
  HS_ASSIGN_OR_RETURN(const Problem problem, ProblemFromFlags(client, arguments));
  if (plans.size() == 1) HS_RETURN_IF_ERROR(AddCalibrated(problem.model, plans));
  const std::string labels = absl::GetFlag(FLAGS_labels);
  Report report(format);
  report.Begin(problem, PrintPlan(plans[0]));
  std::optional<PlanRun> reference;
  int64_t failed = 0;
  for (const Plan& plan : plans) {
    HS_ASSIGN_OR_RETURN(PlanRun run, Run(client, problem, plan));
    failed += run.ledger.failed_rows();
    std::optional<double> accuracy;
    if (!labels.empty() && !run.labels.empty()) {
      HS_ASSIGN_OR_RETURN(accuracy, Accuracy(labels, run.labels));
    }
    if (!reference) reference = run;
    report.Add(run, Compare(run, *reference), accuracy);
  }
  report.Print(problem.count);
  return failed;
}

}  // namespace hyperserve
