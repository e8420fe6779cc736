#include "core/engine/readable/solve_setup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/engine/choose_engine.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/spec/spec.h"
#include "core/ode/solver_table.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

// The padding that serves all of these nets; each comes with the shape of its rows.
RowPadding PaddingOf(const std::vector<std::pair<const LayerList*, Shape>>& nets, int64_t rows,
                     at::Device device) {
  if (device.is_cuda()) return {.multiple = 1, .at_least = Bucket(rows)};
  RowPadding padding;
  for (const auto& [layers, shape] : nets) {
    padding.multiple = std::max(padding.multiple, RowMultiple(*layers, shape));
  }
  return padding;
}

}  // namespace

bool RunsToData(const BatchSpec& spec) {
  const Direction direction =
      spec.direction == Direction::kForward ? spec.model->spec().direction : spec.direction;
  return direction == Direction::kNoiseToData;
}

at::ScalarType ResultDtype(const BatchSpec& spec) {
  return spec.tier == Tier::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType SolveDtype(const BatchSpec& spec) {
  return spec.log_density == LogDensity::kStepMap ? at::kDouble : ResultDtype(spec);
}

Dual PaddedMap::Apply(const Dual& rows) const {
  if (net.empty()) return rows;
  const int64_t count = rows.value.size(0);
  return KeepRows(net.Apply(PadRows(rows, padding.Rows(count)), Dual()), count);
}

SolverTable<TableCoefficient> TableFor(const BatchSpec& spec, int64_t steps, at::Device device) {
  if (spec.correction == nullptr) {
    const std::array<double, 2> span = spec.span.value_or(spec.model->spec().span);
    const FixedPlan plan = {.method = spec.method, .steps = static_cast<int>(steps)};
    return BindTable(ClassicalTable(plan, span[0], span[1]));
  }
  const Hypersolver::TableFacts& table = *spec.correction->table(steps);
  auto bound = *spec.correction->tables().Get(*table.spec, table.nodes, device, SolveDtype(spec));
  if (!spec.want_distance) bound.distance.reset();
  return bound;
}

SolveSetup SetUpSolve(const BatchSpec& spec, int64_t rows, at::Device device) {
  const ModelSpec& model = spec.model->spec();
  const at::ScalarType dtype = SolveDtype(spec);
  const NetWeights& weights = spec.model->weights();
  const Shape& state = spec.model->state_shape();
  TensorSpace::Options space{.field = weights.Get("field", device, dtype),
                             .log_density = spec.log_density};
  std::vector<std::pair<const LayerList*, Shape>> nets = {{&model.field, state}};
  const LayerList map = {MapLayer(state)};
  space.knots = spec.knots;
  if (IsReflected(spec)) {
    space.reflected_clock_sum = model.span[0] + model.span[1];
  }
  if (spec.guidance > 0) {
    space.no_condition = at::tensor(model.no_condition, at::kDouble).to(device, dtype).unsqueeze(0);
  }
  if (spec.correction != nullptr) {
    const HypersolverSpec& correction = spec.correction->spec();
    const NetWeights& of = spec.correction->weights();
    if (correction.learned()) {
      for (const TableSpec& table : correction.tables) {
        const bool maps_slopes = table.coefficients == Coefficients::kMap ||
                                 (spec.want_distance && table.distance == Coefficients::kMap);
        if (maps_slopes) nets.emplace_back(&map, state);
        if (table.net.empty()) continue;
        space.readouts.emplace(
            table.evaluations,
            TensorSpace::ReadoutNet{
                .net = of.Get(TablePrefix(table.evaluations) + ".net", device, dtype),
                .inputs = table.inputs});
        nets.emplace_back(&table.net, CorrectionInputShape(table, state).value());
      }
    } else {
      space.correction = of.Get("net", device, dtype);
      space.correction_inputs = correction.inputs;
      nets.emplace_back(&correction.net, CorrectionInputShape(correction, state).value());
    }
  }
  space.padding = PaddingOf(nets, rows, device);
  const int64_t bucket = space.padding.Rows(rows);
  if (spec.guidance > 0) space.padding.at_least *= 2;  // a row may come with two halves
  return {.space = TensorSpace(std::move(space)),
          .stem = {.net = weights.Get("stem", device, dtype),
                   .padding = PaddingOf({{&model.stem, model.input.shape}}, rows, device)},
          .head = {.net = weights.Get("head", device, dtype),
                   .padding = PaddingOf({{&model.head, state}}, rows, device)},
          .bucket = bucket};
}

void EvaluateNets(const BatchSpec& spec, const SolveSetup& setup, at::Device device) {
  const ModelSpec& model = spec.model->spec();
  const Shape& state = spec.model->state_shape();
  const auto zeros = [&](Shape shape) {
    shape.insert(shape.begin(), setup.bucket);
    return at::zeros(shape, at::TensorOptions(device).dtype(SolveDtype(spec)));
  };
  const at::Tensor depth = zeros({});
  const at::Tensor condition = model.condition.empty() ? at::Tensor() : zeros(model.condition);
  const TensorSpace::Options& nets = setup.space.options();
  if (spec.entry == Entry::kInput) setup.stem.Apply(zeros(model.input.shape));
  nets.field.Apply(zeros(state), depth, condition);
  if (nets.correction) {
    const Shape inputs = CorrectionInputShape(spec.correction->spec(), state).value();
    nets.correction->Apply(zeros(inputs), depth, condition);
  }
  if (spec.correction != nullptr) {
    for (const TableSpec& table : spec.correction->spec().tables) {
      if (table.net.empty()) continue;
      const Shape inputs = CorrectionInputShape(table, state).value();
      nets.readouts.at(table.evaluations).net.Apply(zeros(inputs), at::Tensor(), condition);
    }
  }
  if (HasOutputs(model.kind)) setup.head.Apply(zeros(state));
}

}  // namespace hyperserve
