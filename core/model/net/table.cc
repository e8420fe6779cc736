#include "core/model/net/table.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"

namespace hyperserve {
namespace {

TableCoefficient Bind(Coefficients kind, const Shape& state_shape, const at::Tensor& value) {
  if (kind != Coefficients::kMap) return {.value = value};
  const LayerList map = {MapLayer(state_shape)};
  const std::string weight = "map.0.weight";
  const Shape shape = ExpectedTensors(map, "map").at(weight);
  return {.value = {}, .map = Net::Make(map, "map", {{weight, value.view(shape)}}).value()};
}

DistanceReadout<TableCoefficient> BindDistance(const TableSpec& table, const Shape& state_shape,
                                               const TensorMap& tensors) {
  const std::string name = TablePrefix(table.evaluations) + ".distance";
  std::vector<TableCoefficient> all;
  for (const at::Tensor& value : tensors.at(name).unbind(0)) {
    all.push_back(Bind(*table.distance, state_shape, value));
  }
  return {.end = all[0],
          .state = all[1],
          .slopes = {all.begin() + 2, all.end()},
          .offset = {.value = tensors.at(name + "_offset")}};
}

}  // namespace

SolverTable<TableCoefficient> BindTable(const SolverTable<double>& table) {
  const auto bind = [](const std::vector<double>& values) {
    std::vector<TableCoefficient> bound;
    for (const double value : values)
      bound.push_back({.value = at::scalar_tensor(value, at::kDouble)});
    return bound;
  };
  SolverTable<TableCoefficient> bound{.nodes = table.nodes, .state = bind(table.state)};
  for (const std::vector<double>& row : table.slopes) bound.slopes.push_back(bind(row));
  return bound;
}

SolverTable<TableCoefficient> BindTable(const TableSpec& table, const Shape& state_shape,
                                        const TensorMap& tensors, std::vector<double> nodes) {
  SolverTable<TableCoefficient> bound{.nodes = std::move(nodes)};
  if (table.distance) bound.distance = BindDistance(table, state_shape, tensors);
  if (table.evaluations == 0) return bound;
  const std::string prefix = TablePrefix(table.evaluations);
  const auto each = [&](const char* name) { return tensors.at(prefix + name).unbind(0); };
  const std::vector<at::Tensor> state = each(".state"), slopes = each(".slopes");
  for (const at::Tensor& offset : each(".offset")) bound.offset.push_back({.value = offset});
  auto slope = slopes.begin();
  for (size_t i = 0; i < state.size(); ++i) {
    bound.state.push_back(Bind(table.coefficients, state_shape, state[i]));
    bound.slopes.emplace_back();
    for (size_t j = 0; j <= i; ++j) {
      bound.slopes.back().push_back(Bind(table.coefficients, state_shape, *slope++));
    }
  }
  return bound;
}

BoundTables::BoundTables(const NetWeights* weights, Shape state_shape)
    : weights_(weights), state_shape_(std::move(state_shape)) {}

std::shared_ptr<const BoundTables::Table> BoundTables::Get(const TableSpec& spec,
                                                           const std::vector<double>& nodes,
                                                           at::Device device,
                                                           at::ScalarType dtype) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const Table>& table = bound_[{spec.evaluations, device.str(), dtype}];
  if (table == nullptr) {
    const c10::InferenceMode ordinary(false);  // as the tensors of NetWeights
    table = std::make_shared<const Table>(
        BindTable(spec, state_shape_, weights_->Tensors(device, dtype), nodes));
  }
  return table;
}

TensorMap TableTensors(const SolverTable<double>& table, Coefficients kind,
                       const Shape& state_shape) {
  const int n = table.evaluations();
  if (n == 0) return {};
  const int64_t channels = state_shape[0];
  std::vector<double> slopes;
  for (const auto& row : table.slopes) slopes.insert(slopes.end(), row.begin(), row.end());
  const auto spread = [&](const std::vector<double>& values) {
    const at::Tensor numbers = at::tensor(values, at::kDouble);
    switch (kind) {
      case Coefficients::kChannel:
        return numbers.view({-1, 1}).repeat({1, channels});
      case Coefficients::kMap:
        return numbers.view({-1, 1, 1}) * at::eye(channels, at::kDouble);
      case Coefficients::kScalar:
        break;
    }
    return numbers;
  };
  at::Tensor offset = at::zeros({n, channels}, at::kDouble);
  for (size_t i = 0; i < table.offset.size(); ++i) {
    offset.select(0, static_cast<int64_t>(i)).fill_(table.offset[i]);
  }
  const std::string prefix = TablePrefix(n);
  return {{prefix + ".state", spread(table.state)},
          {prefix + ".slopes", spread(slopes)},
          {prefix + ".offset", offset},
          {prefix + ".depth", at::tensor(table.nodes, at::kDouble)}};
}

}  // namespace hyperserve
