// The calls of the commands that send rows: one for each slice of the rows, several at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/frame/flags.h"
#include "client/frame/rows.h"
#include "client/frame/session.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "programs/progress.h"

namespace hyperserve {

// The rows of a command, and what they are sent with.
struct RowsToSend {
  OutputFormat format = OutputFormat::kTable;
  Plan plan;
  v1::GetModelReply model;
  HostTensor rows;  // [rows, input shape of the model], in the dtype of the plan's tier
  RowTerms terms;   // as RowTermsFromFlags returns them
};

// Reads the flags and the file `input`, asks the daemon for the model, and fits the rows into its
// input. What is wrong in a flag or in the file fails before the first call: as FormatFromFlags,
// PlanFromText and ReadInput; then as ChooseModel, FitInput and RowTermsFromFlags. Main thread
// only.
absl::StatusOr<RowsToSend> ReadRowsToSend(Client& client, const std::string& input);

// Calls `ask` for each slice of at most `batch` rows, with the request id of that slice, and
// returns the answers in the order of the rows. `ask` must be thread-safe for different slices: it
// is called as the work of ForEachSlice, and a failure ends as it does there. Shows its progress
// under the name `what`.
template <class Answer>
absl::StatusOr<std::vector<Answer>> AskInSlices(
    const std::string& what, int64_t rows, int64_t batch,
    const std::function<absl::StatusOr<Answer>(const Slice&, const std::string& request_id)>& ask) {
  std::vector<Answer> answers((rows + batch - 1) / batch);
  Progress progress(what, rows, "rows");
  HS_RETURN_IF_ERROR(ForEachSlice(
      rows, batch, absl::GetFlag(FLAGS_concurrency), [&](const Slice& slice) -> absl::Status {
        HS_ASSIGN_OR_RETURN(answers[slice.index],
                            ask(slice, RequestIdOfSlice(slice.index, std::ssize(answers))));
        progress.Advance(slice.rows());
        return absl::OkStatus();
      }));
  return answers;
}

}  // namespace hyperserve
