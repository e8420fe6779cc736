// What a run learns from and is measured on: labelled images from IDX files, and the rows that
// solves start from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "training/data/density.h"
#include "training/data/recipe.h"

namespace hyperserve {

struct LabelledImages {
  HostTensor images;  // U8 [rows, shape of the model's input]
  std::vector<int64_t> labels;

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

enum class IdxPart { kTraining, kTest };
// Reads "train-images-idx3-ubyte" and its three companions, plain or with ".gz", from `folder`.
// kNotFound names the files that were looked for; kInvalidArgument what does not fit the model's
// input, or labels beyond `classes`.
absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, IdxPart part,
                                          const Shape& input, int64_t classes);

// Rows that solves start from: U8 images as a model's input, or F32 states of a flow.
struct SolveInputs {
  Entry entry = Entry::kState;
  HostTensor rows;

  int64_t count() const { return rows.shape[0]; }
};

// Where they come from. Three sets that share no row: to fit on, to choose checkpoints by
// (validation; also the probe), to report on (held out).
class InputSource {
 public:
  // `direction` of the solves: kForward for a classifier's images, kNoiseToData for normal noise,
  // kDataToNoise for points of the recipe's density. `data_folder` is read for images only.
  static absl::StatusOr<InputSource> Make(const Recipe& recipe, const ModelSpec& spec,
                                          Direction direction, const std::string& data_folder);

  // The `index`-th batch to fit on: a function of the recipe's seed and the arguments.
  SolveInputs Training(int64_t index, int64_t rows) const;
  // The first rows of the other sets. Images: kInvalidArgument beyond what there is.
  absl::StatusOr<SolveInputs> Validation(int64_t rows) const;
  absl::StatusOr<SolveInputs> HeldOut(int64_t rows) const;

 private:
  InputSource() = default;
  SolveInputs Points(uint64_t set, int64_t first, int64_t rows) const;

  uint64_t seed_ = 0;
  Shape shape_;
  std::optional<Density> density_;               // set for kDataToNoise
  HostTensor training_, validation_, held_out_;  // images; empty for flows
};

}  // namespace hyperserve
