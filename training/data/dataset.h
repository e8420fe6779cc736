// The data of a training run: labelled images from IDX files, and the rows that solves start from.
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
// Reads the images and labels of one part from `folder`: "train-images-idx3-ubyte" and the like,
// plain or with ".gz". kNotFound: a file is missing; the message names both spellings.
// kInvalidArgument: the files do not fit the model's input, or a label is not below `classes`.
absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, IdxPart part,
                                          const Shape& input, int64_t classes);

// Rows that solves start from: U8 images as a model's input, or F32 states of a flow.
struct SolveInputs {
  Entry entry = Entry::kState;
  HostTensor rows;

  int64_t count() const { return rows.shape[0]; }
};

// The source of these rows. It has three sets that share no row: one to fit on, one to choose
// checkpoints by (validation; it also fills the probe), one to report on (held out).
class InputSource {
 public:
  // `direction` is that of the solves: kForward takes a classifier's images, kNoiseToData normal
  // noise, kDataToNoise points of the recipe's density. `data_folder` is read for images only.
  // Fails as LoadImages does, and with kInvalidArgument where recipe and model do not fit.
  static absl::StatusOr<InputSource> Make(const Recipe& recipe, const ModelSpec& spec,
                                          Direction direction, const std::string& data_folder);

  // The `index`-th batch to fit on. It depends on the recipe's seed and the arguments only.
  SolveInputs Training(int64_t index, int64_t rows) const;
  // The first rows of the other sets. kInvalidArgument: there are fewer images.
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

// The bytes of probe.safetensors: the first validation rows. Fails as Validation does.
absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows);

}  // namespace hyperserve
