#include "core/engine/fused/flow_model.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/engine/fused/net_reader.h"
#include "core/engine/fused/table_numbers.h"
#include "core/io/tensor.h"
#include "core/kernels/flow/flow_fit.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/net.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

using kernels::FlowActivation;
using kernels::FlowInput;

// Reads a list of layers as linear layers with activations between them.
class FlowReader : public NetReader<FlowReader> {
 public:
  // `inputs`: what the net reads before it reads the depth.
  FlowReader(const TensorMap& tensors, std::string who, std::vector<FlowInput> inputs)
      : NetReader(tensors, std::move(who)) {
    net_.inputs = std::move(inputs);
  }

  absl::StatusOr<kernels::FlowNet> Read(const LayerList& layers) && {
    HS_RETURN_IF_ERROR(TakeAll(layers));
    if (!after_linear_)
      return absl::UnimplementedError(absl::StrCat(who(), " ends in an activation"));
    net_.activation = activation_.value_or(FlowActivation::kRectifier);
    return std::move(net_);
  }

 private:
  friend NetReader;
  using NetReader::Take;
  bool Take(const DepthCatLayer& layer) {
    if (!net_.layers.empty()) return false;
    net_.inputs.insert(layer.first ? net_.inputs.begin() : net_.inputs.end(), FlowInput::kDepth);
    return true;
  }
  bool Take(const LinearLayer& layer) {
    if (after_linear_) return false;
    after_linear_ = true;
    net_.layers.push_back({.outputs = static_cast<int>(layer.out),
                           .weight = LayerNumbers("weight"),
                           .bias = layer.bias ? LayerNumbers("bias") : std::vector<float>(),
                           .slopes = {}});
    return true;
  }
  bool Take(const SoftplusLayer& layer) {
    return layer.beta == 1.0 && Activate(FlowActivation::kSoftplus);
  }
  bool Take(const TanhLayer&) { return Activate(FlowActivation::kTanh); }
  bool Take(const SiluLayer&) { return Activate(FlowActivation::kSilu); }
  bool Take(const ReluLayer&) { return Rectify({}); }
  bool Take(const LeakyReluLayer& layer) {
    return Rectify({static_cast<float>(layer.negative_slope)});
  }
  bool Take(const PreluLayer&) { return Rectify(LayerNumbers("weight")); }

  bool Activate(FlowActivation activation) {
    if (!after_linear_ || activation_.value_or(activation) != activation) return false;
    activation_ = activation;
    after_linear_ = false;
    return true;
  }
  // `slopes`: none, one for all units, or one for each.
  bool Rectify(std::vector<float> slopes) {
    if (!Activate(FlowActivation::kRectifier)) return false;
    kernels::FlowLayer& layer = net_.layers.back();
    layer.slopes = SlopesOf(std::move(slopes), layer.outputs);
    return true;
  }

  std::optional<FlowActivation> activation_;
  bool after_linear_ = false;
  kernels::FlowNet net_;
};

FlowInput InputOf(CorrectionInput input) {
  switch (input) {
    case CorrectionInput::kState:
      return FlowInput::kState;
    case CorrectionInput::kSlope1:
      return FlowInput::kSlope1;
    case CorrectionInput::kSlope2:
      return FlowInput::kSlope2;
    case CorrectionInput::kState0:
      return FlowInput::kState0;
    case CorrectionInput::kStep:
      return FlowInput::kStep;
    case CorrectionInput::kSlopes:
      return FlowInput::kSlopes;
    case CorrectionInput::kDepth:
      break;
  }
  return FlowInput::kDepth;
}

std::vector<FlowInput> InputsOf(const std::vector<CorrectionInput>& inputs) {
  std::vector<FlowInput> result;
  for (const CorrectionInput input : inputs) result.push_back(InputOf(input));
  return result;
}

// Sets what of a learned solver belongs to the table of so many evaluations.
absl::Status ReadTable(const Hypersolver& learned, int64_t evaluations, kernels::FlowModel& flow) {
  const Hypersolver::TableFacts& facts = *learned.table(evaluations);
  const TensorMap tensors = learned.weights().Tensors(at::kCPU, at::kFloat);
  flow.table = TableNumbers<kernels::FlowTable>(facts, tensors, flow.dimensions);
  if (facts.spec->net.empty()) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(flow.correction,
                      FlowReader(tensors, TablePrefix(facts.spec->evaluations) + ".net",
                                 InputsOf(facts.spec->inputs))
                          .Read(facts.spec->net));
  flow.correction->slopes = static_cast<int>(evaluations);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<kernels::FlowModel> FlowModelOf(const Model& model, const Hypersolver* correction,
                                               int64_t evaluations) {
  if (model.state_shape().size() != 1) {
    return absl::UnimplementedError(
        absl::StrCat("the state ", ShapeText(model.state_shape()), " is not a vector"));
  }
  kernels::FlowModel flow{.dimensions = static_cast<int>(model.state_elements()),
                          .field = {},
                          .correction = std::nullopt};
  const TensorMap weights = model.weights().Tensors(at::kCPU, at::kFloat);
  HS_ASSIGN_OR_RETURN(flow.field,
                      FlowReader(weights, "field", {FlowInput::kState}).Read(model.spec().field));
  if (correction != nullptr && correction->spec().learned()) {
    HS_RETURN_IF_ERROR(ReadTable(*correction, evaluations, flow));
  } else if (correction != nullptr) {
    const TensorMap of_correction = correction->weights().Tensors(at::kCPU, at::kFloat);
    HS_ASSIGN_OR_RETURN(flow.correction,
                        FlowReader(of_correction, "net", InputsOf(correction->spec().inputs))
                            .Read(correction->spec().net));
  }
  const std::string misfit = kernels::FlowMisfit(flow);
  if (!misfit.empty()) return absl::UnimplementedError(misfit);
  return flow;
}

}  // namespace hyperserve
