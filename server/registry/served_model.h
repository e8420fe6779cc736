// A model as it is served at one moment: plain data, immutable, shared by pointer, readable from
// any thread. A request that holds it keeps the model and its generations alive.
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

// One immutable version of a correction. Its number is at least 1.
struct Generation {
  int64_t number = 0;
  std::shared_ptr<const Hypersolver> correction;
  Calibration calibration;  // of the plans that use the correction; may be empty
};

// The correction of one model for one method.
struct CorrectionState {
  MethodChoice method;
  std::shared_ptr<const Generation> active;    // null: none is served
  std::shared_ptr<const Generation> previous;  // rollback returns to it; null: none
  std::string problem;                         // why no generation is served; empty: none
};

// Comes from Registry::Pin or List. A swap makes another object and leaves this one as it is.
struct ServedModel {
  std::string name;  // as its folder is called
  std::shared_ptr<const Model> model;
  std::string spec_json;                     // model.json as on disk
  Calibration calibration;                   // of the classical plans; may be empty
  std::vector<CorrectionState> corrections;  // one for each method
  std::string problem;                       // why calibration.json is not used; empty: none

  // The correction for the method, owned by this model. Null: the model has none.
  const CorrectionState* Find(const MethodChoice& method) const;
};

}  // namespace hyperserve
