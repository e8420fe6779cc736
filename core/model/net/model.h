// A loaded model and a loaded correction: spec, weights, digest and costs. Both are immutable after
// loading, shared by pointer and safe for any number of threads. Only weights() and tables() lead
// to LibTorch, so the server can hold models without LibTorch's headers.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"

namespace hyperserve {

class NetWeights;   // core/model/net/net.h: the layers with their tensors, on any device and in any
                    // dtype
class BoundTables;  // core/model/net/table.h: the same of a learned solver's tables

// Made by the registry, the trainer and tests; runs and replies hold it by shared pointer.
class Model {
 public:
  // Reads <folder>/model.json, weights.safetensors and, where the spec says so, field.pt2. Blocks
  // on the disk. kNotFound where a file is missing; kInvalidArgument where the spec is malformed,
  // or where the tensors are not exactly those that the spec expects, finite in float32 and with
  // variances of at least 0, or where the code is not that of a field (FieldPackage).
  // kFailedPrecondition: its code is refused. Messages name folder, file, tensor, and the wanted
  // and the found shape.
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& folder,
                                                           FieldCode code = FieldCode::kRefused);
  // The same from the bytes of the two files. The weights are copied in pieces, and each piece is
  // given back at once: a file of 3 GB takes 3 GB.
  static absl::StatusOr<std::shared_ptr<const Model>> FromBytes(const std::string& model_json,
                                                                std::string weights);
  // `field_package` holds the bytes of field.pt2; empty: there is none.
  static absl::StatusOr<std::shared_ptr<const Model>> FromFile(
      const std::string& model_json, SafetensorsFile weights, const std::string& field_package = {},
      FieldCode code = FieldCode::kRefused);

  ~Model();
  // The references live as long as the model.
  const ModelSpec& spec() const;
  const std::string& base_digest() const;  // BaseDigest of the files (repository.h)
  const Shape& state_shape() const;        // of one row
  int64_t state_elements() const;          // of one row
  int64_t input_elements() const;          // of one row
  int64_t outputs() const;                 // of the head; 0: there is none
  // Multiply-accumulates of one evaluation on one row.
  int64_t stem_macs() const;
  // Of a field that is code, what its spec declares.
  int64_t field_macs() const;
  int64_t head_macs() const;
  // False where the field is sealed code.
  bool solvable() const;
  // Has no net "field" where the model is not solvable.
  const NetWeights& weights() const;

 private:
  struct Contents;
  explicit Model(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

// One generation of a correction: a net g for one-step methods, or the tables of a learned solver.
class Hypersolver {
 public:
  // Reads <folder>/hypersolver.json and weights.safetensors and checks them against the model.
  // Fails as Model::Load does, and with kFailedPrecondition where the correction was made for
  // another base digest. The model need not outlive the correction.
  static absl::StatusOr<std::shared_ptr<const Hypersolver>> Load(const std::string& folder,
                                                                 const Model& model);
  // The same from the bytes of the two files, which are not kept.
  static absl::StatusOr<std::shared_ptr<const Hypersolver>> FromBytes(
      const std::string& hypersolver_json, const std::string& weights, const Model& model);
  ~Hypersolver();
  const HypersolverSpec& spec() const;
  // Multiply-accumulates of one evaluation of g on one row; of a learned solver, those of its
  // dearest table.
  int64_t macs() const;
  // Learned solvers: what one solve by this table costs beside f, and its nodes s_i, on the
  // solver's clock. Null where there is no table of that many evaluations.
  struct TableFacts {
    const TableSpec* spec = nullptr;
    int64_t macs = 0;           // of the maps and g, on one row
    int64_t distance_macs = 0;  // of the distance readout, where it is asked for
    std::vector<double> nodes;
  };
  const TableFacts* table(int64_t evaluations) const;
  const NetWeights& weights() const;
  // Of no use where the correction is not learned. Lives as long as this object.
  const BoundTables& tables() const;

 private:
  struct Contents;
  static absl::Status FillTables(const std::string& weights, const Shape& state_shape,
                                 Contents& contents);
  explicit Hypersolver(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

// Checks whether a correction may be used on a span. kFailedPrecondition where method (with alpha)
// or direction differ, or where the eps of a step lies outside the correction's range by more than
// 0.1 % of itself; of a learned solver, where the span differs or where it has no table of that
// many evaluations. The server calls it before a solve and before the gate; engines never do. Pure.
absl::Status CheckApplies(const Hypersolver& correction, const FixedPlan& plan, Direction direction,
                          const std::array<double, 2>& span);

}  // namespace hyperserve
