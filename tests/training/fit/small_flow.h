// The recipe of a flow of a few hundred weights, for tests of fits.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace hyperserve {

// `rest`: what the recipe says after its model.
inline std::string SmallFlow(std::string_view rest) {
  return absl::StrCat(R"({
  "format": 1, "name": "small", "seed": 4, "data": {"density": "gaussians"},
  "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
            "input": {"shape": [2]},
            "field": [{"linear": {"in": 2, "out": 16}}, {"tanh": {}},
                      {"linear": {"in": 16, "out": 2}}]},
  )",
                      Absl(rest), "}");
}

}  // namespace hyperserve
