// A loaded model and a loaded correction: spec, weights, digest and costs. Immutable after loading;
// shared by pointer. LibTorch stays behind `weights()` (core/model/net/net.h), so that the server
// can hold models without its headers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"

namespace hyperserve {

class NetWeights;  // core/model/net/net.h: the layers with their tensors, on any device and in any
                   // dtype

class Model {
 public:
  // Reads <folder>/model.json and weights.safetensors. Errors name the file, the tensor, the shape
  // wanted and found.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& folder);
  // From the files' bytes, as Load would read them.
  static absl::StatusOr<std::shared_ptr<const Model>> FromBytes(const std::string& model_json,
                                                                const std::string& weights);

  ~Model();
  const ModelSpec& spec() const;
  const std::string& base_digest() const;  // lower-case hex, see repository.h
  const Shape& state_shape() const;        // of one row
  int64_t state_elements() const;
  int64_t input_elements() const;
  int64_t outputs() const;  // of the head; 0 for flows
  int64_t stem_macs() const;
  int64_t field_macs() const;
  int64_t head_macs() const;
  const NetWeights& weights() const;

 private:
  struct Contents;
  explicit Model(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

class Hypersolver {
 public:
  // Reads <folder>/hypersolver.json and weights.safetensors, checks both against the model:
  // kFailedPrecondition where the base digest is another one, kInvalidArgument for what is
  // malformed, non-finite or of the wrong shape.
  static absl::StatusOr<std::shared_ptr<const Hypersolver>> Load(const std::string& folder,
                                                                 const Model& model);
  static absl::StatusOr<std::shared_ptr<const Hypersolver>> FromBytes(
      const std::string& hypersolver_json, const std::string& weights, const Model& model);
  ~Hypersolver();
  const HypersolverSpec& spec() const;
  int64_t macs() const;  // of one evaluation of g on one row
  const NetWeights& weights() const;

 private:
  struct Contents;
  explicit Hypersolver(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

// kFailedPrecondition where eps lies outside the correction's range, or the direction or method
// (alpha) is another one. Called by the server, the trainer and the client's checks; never by the
// engines.
absl::Status CheckApplies(const Hypersolver& correction, const FixedPlan& plan, Direction direction,
                          double eps);

}  // namespace hyperserve
