// Classify: labels, probabilities, logits and states of inputs to a classifier. Pure.
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

struct ClassifyAsk {
  AskTerms terms;
  AskedRows inputs = TensorView{};  // [rows, input shape]: F32 (F64 in tier double) or U8
  // Nothing wanted at all asks for labels.
  struct Want {
    bool labels = false;
    int top_k = 0;
    bool probabilities = false;
    bool logits = false;
    bool state = false;  // z(s1)
  } want;
};

// What was not asked for is empty. Rows that ended differently do not fail the call: label -1, an
// empty name and NaN stand in the rows that failed.
struct ClassifyAnswer {
  SolveInfo info;
  std::vector<int64_t> labels;           // [rows]
  std::vector<std::string> label_names;  // [rows], where the model names its classes
  HostTensor top_labels;                 // I64 [rows, k], the most probable first
  HostTensor top_probabilities;          // F32 [rows, k]
  HostTensor probabilities;              // [rows, classes]
  HostTensor logits;                     // [rows, classes]
  HostTensor state;                      // [rows, state shape]
};

absl::StatusOr<Prepared> Prepare(const ClassifyAsk& ask, std::shared_ptr<const ServedModel> served,
                                 const CallLimits& limits);
// `info` as InfoOf and SetTimes leave it; the model is the one that was prepared for.
ClassifyAnswer MakeAnswer(const ClassifyAsk& ask, const ServedModel& served, SolveInfo info,
                          WorkResult result);

}  // namespace hyperserve
