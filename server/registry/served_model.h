// What is served of one model at one moment: plain data, immutable, shared by pointer. A request
// that holds it keeps its model and its generation alive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {

// One immutable version of a correction.
struct Generation {
  int64_t number = 0;
  std::shared_ptr<const Hypersolver> correction;
  Calibration calibration;  // of the plans that use it
};

// One (model, method): what is active and what rollback would return to.
struct CorrectionState {
  MethodChoice method;
  std::shared_ptr<const Generation> active;    // null: none is served
  std::shared_ptr<const Generation> previous;  // null: none
  std::string problem;                         // why what is in the folder is not used; empty: fine
};

struct ServedModel {
  std::string name;
  std::shared_ptr<const Model> model;
  std::string spec_json;  // model.json as on disk
  Calibration calibration;
  std::vector<CorrectionState> corrections;
  std::string problem;  // calibration of another base, and the like; empty: fine

  // Null: the model has no folder for this method.
  const CorrectionState* Find(const MethodChoice& method) const;
};

}  // namespace hyperserve
