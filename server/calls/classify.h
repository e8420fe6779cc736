// Classify: labels, probabilities, logits and states for the inputs of a classifier. Pure; any
// thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"
#include "server/batching/work.h"
#include "server/calls/ask.h"
#include "server/calls/info.h"
#include "server/calls/limits.h"
#include "server/calls/prepare.h"
#include "server/registry/served_model.h"

namespace hyperserve {

// Borrows the inputs from the message until Prepare has copied them.
struct ClassifyAsk {
  AskTerms terms;
  AskedRows inputs = TensorView{};  // [rows, input shape]: F32 (F64 in tier double) or U8
  // What the answer holds. If nothing is set, it holds labels.
  struct Want {
    bool labels = false;
    int top_k = 0;  // classes of each row, with probabilities; 0: none
    bool probabilities = false;
    bool logits = false;
    bool state = false;  // z(s1)
  } want;
};

// Fields that were not asked for are empty. A row that failed does not fail the call: it has the
// label -1, an empty name and NaN. A row whose logits are not finite counts as failed.
struct ClassifyAnswer {
  SolveInfo info;
  std::vector<int64_t> labels;           // [rows]
  std::vector<std::string> label_names;  // [rows]; empty: the model does not name its classes
  HostTensor top_labels;                 // I64 [rows, k], the most probable first
  HostTensor top_probabilities;          // F32 [rows, k]
  HostTensor probabilities;              // [rows, classes]
  HostTensor logits;                     // [rows, classes]
  HostTensor state;                      // [rows, state shape]
};

// Checks the ask and makes its work. kInvalidArgument: the model is no classifier, top_k or the
// rows do not fit it, the reply or the work is over a limit. Else it fails as ResolvePlan does.
// Copies the rows: the work does not refer to the ask.
absl::StatusOr<Prepared> Prepare(const ClassifyAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// Makes the answer from what was solved. `served` is the model that Prepare got; InfoOf and
// SetTimes have filled `info`.
ClassifyAnswer MakeAnswer(const ClassifyAsk& ask, const ServedModel& served, SolveInfo info,
                          WorkResult result);

}  // namespace hyperserve
