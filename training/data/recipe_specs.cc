// The specs that a recipe describes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/net/model.h"
#include "core/model/spec/proto_json.h"
#include "core/model/spec/spec.h"
#include "hyperserve/v1/model.pb.h"
#include "training/data/recipe.h"
#include "training/data/recipe.pb.h"

namespace hyperserve {
namespace {

absl::Status CheckServable(const ModelSpec& spec, const std::string& direction,
                           const std::string& part) {
  if (spec.kind != ModelKind::kFlow || direction != DirectionName(Direction::kForward)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "hypersolver.", part, ".direction: a flow is solved noise_to_data or data_to_noise"));
}

void AddConvolution(int64_t in, int64_t out, int kernel, v1::SolverTable& table) {
  v1::Layer::Conv2d& layer = *table.add_net()->mutable_conv2d();
  layer.set_in(static_cast<int32_t>(in));
  layer.set_out(static_cast<int32_t>(out));
  layer.set_kernel(kernel);
  layer.set_padding(kernel / 2);
}

// The readout of a table; recipe.proto describes it.
void FillReadout(const training::Readout& net, const Shape& state_shape, v1::SolverTable& table) {
  for (const char* input : {"state_0", "state", "slopes"}) table.add_inputs(input);
  const bool images = state_shape.size() == 3;
  const bool half = images && !net.full_resolution();
  const int64_t channels = state_shape[0] * (half ? 4 : 1);  // of one state
  int64_t in = channels * (2 + table.evaluations());
  if (half) table.add_net()->mutable_pixel_unshuffle()->set_downscale_factor(2);
  const auto add = [&](int64_t out, int kernel) {
    if (images) {
      AddConvolution(in, out, kernel, table);
    } else {
      v1::Layer::Linear& layer = *table.add_net()->mutable_linear();
      layer.set_in(static_cast<int32_t>(in));
      layer.set_out(static_cast<int32_t>(out));
    }
    in = out;
  };
  for (int i = 0; i < net.hidden_size(); ++i) {
    add(net.hidden(i), i == 0 ? 1 : 3);
    table.add_net()->mutable_silu();
  }
  add(channels, 1);
  if (half) table.add_net()->mutable_pixel_shuffle()->set_upscale_factor(2);
}

// Of the table at a place among `evaluations`; null: it has none.
const training::Readout* ReadoutAt(const training::LearnedSolver& learned, int place) {
  if (learned.nets().empty()) return learned.has_net() ? &learned.net() : nullptr;
  return learned.nets(place).hidden().empty() ? nullptr : &learned.nets(place);
}

}  // namespace

absl::StatusOr<HypersolverSpec> RecipeHypersolverSpec(const Recipe& recipe, const Model& model) {
  v1::HypersolverSpec proto = recipe.hypersolver().net();
  HS_RETURN_IF_ERROR(CheckServable(model.spec(), proto.direction(), "net"));
  const auto [fewest, most] =
      std::minmax_element(recipe.hypersolver().steps().begin(), recipe.hypersolver().steps().end());
  const double length = model.spec().span[1] - model.spec().span[0];
  proto.set_format(1);
  proto.add_eps(length / *most);
  proto.add_eps(length / *fewest);
  proto.set_base_digest(model.base_digest());
  return ParseHypersolverSpec(PrintProtoJson(proto), model.state_shape());
}

absl::StatusOr<HypersolverSpec> RecipeLearnedSpec(const Recipe& recipe, const Model& model) {
  const training::LearnedSolver& learned = recipe.hypersolver().solver().learned();
  HS_RETURN_IF_ERROR(CheckServable(model.spec(), learned.direction(), "solver.learned"));
  if (model.spec().kind == ModelKind::kTrajectory) {
    return absl::InvalidArgumentError(
        "hypersolver.solver: a learned solver gives no states on the way, a trajectory's answer");
  }
  v1::HypersolverSpec proto;
  proto.set_format(1);
  proto.set_method("learned");
  proto.set_direction(learned.direction());
  proto.mutable_span()->Add(model.spec().span.begin(), model.spec().span.end());
  for (int place = 0; place < learned.evaluations_size(); ++place) {
    const int evaluations = learned.evaluations(place);
    v1::SolverTable& table = *proto.add_tables();
    table.set_evaluations(evaluations);
    const bool too_many_maps = learned.maps_up_to() > 0 && evaluations > learned.maps_up_to() &&
                               learned.coefficients() == CoefficientsName(Coefficients::kMap);
    table.set_coefficients(too_many_maps ? std::string(CoefficientsName(Coefficients::kChannel))
                                         : learned.coefficients());
    if (const training::Readout* net = ReadoutAt(learned, place)) {
      FillReadout(*net, model.state_shape(), table);
    }
  }
  proto.set_base_digest(model.base_digest());
  return ParseHypersolverSpec(PrintProtoJson(proto), model.state_shape());
}

training::Optimiser TableOptimiser(const training::HypersolverFit& fit, int place) {
  training::Optimiser optimiser = fit.optimiser();
  const training::LearnedSolver& learned = fit.solver().learned();
  if (!learned.rates().empty()) optimiser.set_rate(learned.rates(place));
  return optimiser;
}

}  // namespace hyperserve
