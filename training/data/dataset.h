// The data of a training run: labelled images or points from files, and the rows that solves start
// from. Files are read as the client reads them (core/io/rows.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/batch_spec.h"
#include "core/engine/engine.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "training/data/density.h"
#include "training/data/image_files.h"
#include "training/data/recipe.h"
#include "training/data/signal.h"

namespace hyperserve {

// One label for each image.
struct LabelledImages {
  HostTensor images;  // U8 or F32 [rows, shape of the model's input]
  std::vector<int64_t> labels;

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
  // SHA-256 of images and labels, in hexadecimal.
  std::string Digest() const;
};

// Reads the images and labels of one part from `folder`: "train-images-idx3-ubyte" and the like,
// plain or with ".gz", or "train-images.npy" and so on, or CIFAR-10's batches (recipe.proto).
// kNotFound: a file is missing; the message lists the names. kInvalidArgument: the files do not fit
// the model's input (FitRows), or a label is not a whole number below `classes`.
absl::StatusOr<LabelledImages> LoadImages(const std::string& folder, ImagePart part,
                                          const InputSpec& input, int64_t classes);
// The labelled inputs of a classifier's recipe: those of LoadImages, or of data.points the tensors
// x and y of a safetensors file, shuffled as InputSource shuffles them. The training part ends with
// the validation rows; the test part is the held-out rows. Also fails where the file has no y.
absl::StatusOr<LabelledImages> LoadLabelled(const Recipe& recipe, const InputSpec& input,
                                            int64_t classes, ImagePart part,
                                            const std::string& data);

// Rows that solves start from: inputs of a model, or F32 states of a flow.
struct SolveInputs {
  Entry entry = Entry::kState;
  HostTensor rows;
  HostTensor condition = {};  // F32 [rows, features]; without dimensions: the model has none
  // F32: what a regressor should give, [rows, outputs], or a trajectory, [rows, save_at, state...];
  // without dimensions: the source has none.
  HostTensor answer = {};

  int64_t count() const { return rows.shape[0]; }
  // All rows. It borrows both arrays.
  Segment segment() const {
    return {.rows = count(), .data = rows.view(), .condition = condition.view()};
  }
};
// Rows [begin, begin + rows) with what belongs to them. Precondition: they are there.
SolveInputs RowsOf(const SolveInputs& inputs, int64_t begin, int64_t rows);

// The source of these rows. It has three sets that share no row: one to fit on, one to choose
// checkpoints by (validation; it also fills the probe), one to report on (held out).
class InputSource {
 public:
  // `direction` is that of the solves: kForward takes a classifier's images or the rows of its
  // file, without labels, and a regressor's or a trajectory's inputs, from data.pairs and
  // data.signal with answers; kNoiseToData normal noise, kDataToNoise points of the recipe's
  // density or of its file; the rows of data.states serve both directions of a flow. In both a
  // conditional flow has the conditions of these points. `data` is the folder of images or the file
  // of points; a density needs none. Fails as LoadImages and ReadRows do, and with kInvalidArgument
  // where recipe and model do not fit.
  static absl::StatusOr<InputSource> Make(const Recipe& recipe, const ModelSpec& spec,
                                          Direction direction, const std::string& data);

  // The `index`-th batch to fit on. It depends on the recipe's seed and the arguments only.
  SolveInputs Training(int64_t index, int64_t rows) const;
  // The first rows of the other sets. kInvalidArgument: there are fewer.
  absl::StatusOr<SolveInputs> Validation(int64_t rows) const;
  // The same rows at every call, so measurements of one recipe compare.
  absl::StatusOr<SolveInputs> HeldOut(int64_t rows) const;
  // A digest of what was read from files. What is drawn follows from the recipe and counts as none.
  std::string Digest() const;
  std::optional<int64_t> validation_rows() const;  // nullopt: they are drawn, as many as one asks

 private:
  InputSource() = default;
  absl::Status TakeImages(const Recipe& recipe, const ModelSpec& spec, const std::string& folder);
  absl::Status TakePoints(const Recipe& recipe, const ModelSpec& spec, const std::string& path);
  absl::Status TakeDensity(const std::string& name);
  absl::Status TakeSignal(const Recipe& recipe, const ModelSpec& spec);
  HostTensor Noise(uint64_t set, int64_t first, int64_t rows) const;
  SolveInputs OffSignal(uint64_t set, int64_t first, int64_t rows) const;
  SolveInputs Drawn(uint64_t set, int64_t first, int64_t rows) const;

  uint64_t seed_ = 0;
  Shape shape_, condition_;         // of one row
  bool from_noise_ = false;         // rows are noise, whatever file or density there is
  Entry entry_ = Entry::kState;     // kInput: of all kinds but flows
  std::optional<Density> density_;  // of points, or of their conditions
  std::optional<Signal> signal_;
  double signal_start_ = 0;            // the depth at which rows start
  std::vector<double> signal_depths_;  // and those of their answers
  struct Sets {
    SolveInputs training, validation, held_out;
  };
  std::shared_ptr<const Sets> files_;  // copies share it; null: rows are drawn
};

// The bytes of probe.safetensors: the first validation rows, with their conditions. Fails as
// Validation does.
absl::StatusOr<std::string> ProbeBytes(const InputSource& source, int64_t rows);

}  // namespace hyperserve
