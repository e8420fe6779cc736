#include "core/engine/readable/tensor_space.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/engine/readable/row_conditions.h"
#include "core/engine/readable/row_numbers.h"
#include "core/model/net/bound_layer.h"
#include "core/model/spec/spec.h"

namespace hyperserve {
namespace {

using State = TensorSpace::State;

// The parts of a state, and the dimension of each that counts rows.
struct Part {
  at::Tensor State::*tensor;
  int64_t row_dim;
};
constexpr Part kParts[] = {{&State::z, 0}, {&State::tangents, 1}, {&State::log_density, 0}};
// What a row brings along, by rows: no combination changes it.
constexpr at::Tensor State::*kBrought[] = {&State::condition, &State::guidance, &State::probes};

// For each part that the state has: result.part = make(part). What rows bring along stays.
template <class Make>
State ForEachPart(const State& like, const Make& make) {
  State result{.z = {},
               .tangents = {},
               .log_density = {},
               .condition = like.condition,
               .condition_tangents = like.condition_tangents,
               .guidance = like.guidance,
               .probes = like.probes};
  for (const Part& part : kParts) {
    if ((like.*part.tensor).defined()) result.*part.tensor = make(part);
  }
  return result;
}

bool AllEqual(const PerRow& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// weights * x, row by row. A scalar and a tensor of equal weights give the same bits.
at::Tensor Weighted(const PerRow& weights, const at::Tensor& x, const int64_t row_dim) {
  if (AllEqual(weights)) return x * weights.front();
  return x * OverRows(RowTensor(weights, x.options()), x, row_dim);
}

// [B]. One depth for all rows is no memory of the host, so that a solve of such rows can be
// captured.
at::Tensor DepthTensor(const PerRow& depth, const at::TensorOptions& like) {
  if (!AllEqual(depth)) return RowTensor(depth, like);
  return at::full({static_cast<int64_t>(depth.size())}, depth.front(), like);
}

// The unit vectors of a row: [T, B, ...], T being the number of elements of a row.
at::Tensor UnitTangents(const at::Tensor& z) {
  const int64_t elements = z.numel() / z.size(0);
  std::vector<int64_t> shape(z.sizes().begin(), z.sizes().end());
  shape.insert(shape.begin(), elements);
  std::vector<int64_t> one_row = shape;
  one_row[1] = 1;
  return at::eye(elements, z.options()).view(one_row).expand(shape);
}

// sum_i tangents[i, row, i], in double and in the order of i. [B]
at::Tensor Trace(const at::Tensor& tangents) {
  const at::Tensor matrices = tangents.flatten(2);
  at::Tensor trace = matrices.select(0, 0).select(1, 0).to(at::kDouble);
  for (int64_t i = 1; i < matrices.size(0); ++i) {
    trace = trace + matrices.select(0, i).select(1, i);
  }
  return trace;
}

// v^T t of each probe and its tangent, in double: probes [B, T, ...], tangents [T, B, ...], the
// result [B, T]. Halves are added to halves, so that the order of the sum depends on nothing but
// the number of elements.
at::Tensor Projections(const at::Tensor& probes, const at::Tensor& tangents) {
  at::Tensor sums = (probes.transpose(0, 1).to(at::kDouble) * tangents.to(at::kDouble)).flatten(2);
  while (sums.size(2) > 1) {
    const int64_t half = sums.size(2) / 2, rest = sums.size(2) - 2 * half;
    const at::Tensor folded = sums.narrow(2, 0, half) + sums.narrow(2, half, half);
    sums = rest == 0 ? folded : at::cat({folded, sums.narrow(2, 2 * half, rest)}, 2);
  }
  return sums.squeeze(2).transpose(0, 1).contiguous();
}

}  // namespace

TensorSpace::TensorSpace(Options options)
    : options_(std::move(options)),
      uses_first_state_(std::count(options_.correction_inputs.begin(),
                                   options_.correction_inputs.end(),
                                   CorrectionInput::kState0) > 0) {}

State TensorSpace::Start(at::Tensor z, at::Tensor condition, const at::Tensor& guidance,
                         at::Tensor probes) const {
  State state;
  state.condition = std::move(condition);
  if (guidance.defined()) {
    state.guidance = at::cat({at::zeros({guidance.size(0), 1}, guidance.options()), guidance}, 1);
  }
  if (options_.log_density == LogDensity::kStepMap) state.tangents = UnitTangents(z).contiguous();
  if (options_.log_density == LogDensity::kHutchinson) {
    state.log_density = at::zeros({z.size(0), probes.size(1)}, z.options().dtype(at::kDouble));
    state.probes = std::move(probes);
  } else if (options_.log_density != LogDensity::kNone) {
    state.log_density = at::zeros({z.size(0)}, z.options().dtype(at::kDouble));
  }
  state.z = std::move(z);
  return state;
}

int64_t TensorSpace::passes(const State& z) const {
  if (options_.log_density == LogDensity::kHutchinson) return 1 + z.log_density.size(1);
  return options_.log_density == LogDensity::kNone ? 1 : 1 + z.z.numel() / z.z.size(0);
}

Dual TensorSpace::Evaluate(const Net& net, const Dual& x, const PerRow& depth,
                           const State& of) const {
  const int64_t rows = x.value.size(0), padded = options_.padding.Rows(rows);
  Dual depth_tensor, condition;
  if (net.uses_condition()) {
    condition = {ConditionAt(options_.knots, of.condition, depth),
                 ConditionTangentsAt(options_.knots, of.condition_tangents, depth)};
  }
  if (net.uses_depth()) depth_tensor.value = DepthTensor(depth, x.value.options());
  const Dual y =
      net.Apply(PadRows(x, padded), PadRows(depth_tensor, padded), PadRows(condition, padded));
  return KeepRows(y, rows);
}

Dual TensorSpace::Guided(const Dual& x, const PerRow& depth, const State& of) const {
  const GuidedHalves halves = HalvesOf(of.guidance);
  const at::Tensor places = IndexOn(halves.rows, x.value);
  const at::Tensor given = of.condition.index_select(0, places.narrow(0, 0, halves.given_count));
  const int64_t without = places.size(0) - halves.given_count;
  const int64_t knots = given.size(1) / options_.no_condition.size(1);
  State batch{.z = {}, .tangents = {}, .log_density = {}};
  batch.condition = at::cat({given, options_.no_condition.repeat({without, knots})}, 0);
  if (of.condition_tangents.defined()) {  // those of f(none) are zeros
    const at::Tensor along =
        of.condition_tangents.index_select(1, places.narrow(0, 0, halves.given_count));
    batch.condition_tangents = at::constant_pad_nd(along, {0, 0, 0, without});
  }
  PerRow depths;
  for (const int64_t row : halves.rows) depths.push_back(depth[static_cast<size_t>(row)]);
  Dual both{x.value.index_select(0, places), {}};
  if (x.tangents.defined()) both.tangents = x.tangents.index_select(1, places);
  const Dual slopes = Evaluate(options_.field, both, depths, batch);
  return {Weighed(halves, slopes.value, 0), Weighed(halves, slopes.tangents, 1)};
}

State TensorSpace::Field(const PerRow& s, const State& z) const {
  const bool divergence = options_.log_density == LogDensity::kDivergence;
  const bool reflected = options_.reflected_clock_sum.has_value();
  PerRow depth = s;
  for (double& value : depth) {
    if (reflected) value = *options_.reflected_clock_sum - value;
  }
  const bool estimated = options_.log_density == LogDensity::kHutchinson;
  Dual at{z.z, divergence ? UnitTangents(z.z) : z.tangents};
  if (estimated) at.tangents = z.probes.transpose(0, 1);
  Dual slope = z.guidance.defined() ? Guided(at, depth, z) : Evaluate(options_.field, at, depth, z);
  State result{.z = slope.value, .tangents = slope.tangents, .log_density = {}};
  if (divergence) {
    result.log_density = Trace(slope.tangents);
    result.tangents = at::Tensor();
  } else if (estimated) {
    result.log_density = Projections(z.probes, slope.tangents);
    result.tangents = at::Tensor();
  } else if (z.log_density.defined()) {
    result.log_density = at::zeros_like(z.log_density);  // it grows in AfterStep
  }
  if (!reflected) return result;
  return ForEachPart(result, [&](const Part& part) { return at::neg(result.*part.tensor); });
}

State TensorSpace::Combine(const State& z, std::span<const Term<State>> terms) const {
  if (terms.empty()) return z;
  return ForEachPart(z, [&](const Part& part) {
    at::Tensor sum;
    for (const Term<State>& term : terms) {
      const at::Tensor weighted = Weighted(*term.weights, term.slope->*part.tensor, part.row_dim);
      sum = sum.defined() ? sum + weighted : weighted;
    }
    return z.*part.tensor + sum;
  });
}

State TensorSpace::Minus(const State& a, const State& b) const {
  return ForEachPart(a, [&](const Part& part) { return a.*part.tensor - b.*part.tensor; });
}

State TensorSpace::Where(const std::vector<bool>& mask, const State& yes, const State& no) const {
  const auto chosen = std::count(mask.begin(), mask.end(), true);
  if (chosen == static_cast<std::ptrdiff_t>(mask.size())) return yes;
  if (chosen == 0) return no;
  const at::Tensor rows =
      RowTensor(PerRow(mask.begin(), mask.end()), yes.z.options().dtype(at::kBool));
  return ForEachPart(yes, [&](const Part& part) {
    const at::Tensor& a = yes.*part.tensor;
    return at::where(OverRows(rows, a, part.row_dim), a, no.*part.tensor);
  });
}

State TensorSpace::Gather(const State& z, const std::vector<int64_t>& indices) const {
  const at::Tensor rows = IndexOn(indices, z.z);
  State gathered = ForEachPart(
      z, [&](const Part& part) { return (z.*part.tensor).index_select(part.row_dim, rows); });
  for (const auto brought : kBrought) {
    if (!(z.*brought).defined()) continue;
    gathered.*brought = (z.*brought).index_select(0, rows.to((z.*brought).device()));
  }
  if (z.condition_tangents.defined()) {
    gathered.condition_tangents = z.condition_tangents.index_select(1, rows);
  }
  return gathered;
}

State TensorSpace::Join(const State& a, const State& b) const {
  State joined = ForEachPart(a, [&](const Part& part) {
    return at::cat({a.*part.tensor, b.*part.tensor}, part.row_dim);
  });
  for (const auto brought : kBrought) {
    if ((a.*brought).defined()) joined.*brought = at::cat({a.*brought, b.*brought}, 0);
  }
  if (a.condition_tangents.defined()) {
    joined.condition_tangents = at::cat({a.condition_tangents, b.condition_tangents}, 1);
  }
  return joined;
}

std::vector<bool> TensorSpace::Finite(const State& z) const {
  std::vector<bool> finite = RowsFinite(z.z);
  if (!z.log_density.defined()) return finite;
  const PerRow log_density =
      RowValues(z.log_density.dim() == 1 ? z.log_density : z.log_density.sum(1));
  for (size_t i = 0; i < finite.size(); ++i) {
    finite[i] = finite[i] && std::isfinite(log_density[i]);
  }
  return finite;
}

PerRow TensorSpace::ErrorNorms(const State& error, const State& z0, const State& z1,
                               const PerRow& rtol, const PerRow& atol) const {
  return RowNorms(RowErrorSquares(error.z, z0.z, z1.z, rtol, atol), z0.z.numel() / z0.z.size(0));
}

State TensorSpace::Zero(const State& z) const {
  return ForEachPart(z, [&](const Part& part) { return at::zeros_like(z.*part.tensor); });
}

// Adds log|det| of the step and restarts the tangents, since the product of many Jacobians would
// lose digits. A correction with the input state_0 depends on z(s0) in every step. There the
// tangents run from z(s0), and log|det| is that of the whole map so far.
void TensorSpace::AfterStep(State& z) const {
  if (z.guidance.defined()) {
    z.guidance = z.guidance.clone();  // the state before the step has the old count
    z.guidance.select(1, 0) += 1;
  }
  if (options_.log_density != LogDensity::kStepMap) return;
  const at::Tensor log_det = LogAbsDeterminants(z.tangents).to(z.z.device());
  if (uses_first_state_) {
    z.log_density = log_det;
  } else {
    z.log_density = z.log_density + log_det;
    z.tangents = UnitTangents(z.z).contiguous();
  }
}

// c times the value and its tangents.
Dual TensorSpace::Multiplied(const Coefficient& c, const State& z) const {
  if (c.map) return Evaluate(*c.map, {z.z, z.tangents}, {}, z);
  at::Tensor factor = c.value;
  if (factor.dim() == 1) {
    std::vector<int64_t> shape(static_cast<size_t>(z.z.dim() - 1), 1);
    shape[0] = factor.size(0);
    factor = factor.view(shape);
  }
  return {z.z * factor, z.tangents.defined() ? z.tangents * factor : at::Tensor()};
}

State TensorSpace::Scaled(const Coefficient& c, const State& z) const {
  const Dual scaled = Multiplied(c, z);
  return {.z = scaled.value,
          .tangents = scaled.tangents,
          .log_density = z.log_density,
          .condition = z.condition,
          .condition_tangents = z.condition_tangents,
          .guidance = z.guidance,
          .probes = z.probes};
}

State TensorSpace::AddScaled(const State& z, const Coefficient& c, const State& k) const {
  const Dual scaled = Multiplied(c, k);
  State sum = z;
  sum.z = z.z + scaled.value;
  if (z.tangents.defined()) sum.tangents = z.tangents + scaled.tangents;
  if (z.log_density.defined() && c.value.defined() && c.value.dim() == 0) {
    sum.log_density = z.log_density + k.log_density * c.value;
  }
  return sum;
}

State TensorSpace::Shifted(const State& z, const Coefficient& c) const {
  std::vector<int64_t> shape(static_cast<size_t>(z.z.dim() - 1), 1);
  shape[0] = c.value.size(0);
  State shifted = z;
  shifted.z = z.z + c.value.view(shape);
  return shifted;
}

State TensorSpace::Readout(int evaluations, const State& x_0, const State& x_n,
                           std::span<const State> slopes) const {
  const ReadoutNet& readout = options_.readouts.at(evaluations);
  std::vector<at::Tensor> values, tangents;
  const auto add = [&](const State& input) {
    values.push_back(input.z);
    if (x_n.tangents.defined()) tangents.push_back(input.tangents);
  };
  for (const CorrectionInput input : readout.inputs) {
    if (input == CorrectionInput::kState) add(x_n);
    if (input == CorrectionInput::kState0) add(x_0);
    if (input == CorrectionInput::kSlopes) std::for_each(slopes.begin(), slopes.end(), add);
  }
  const Dual g = Evaluate(
      readout.net, {at::cat(values, 1), tangents.empty() ? at::Tensor() : at::cat(tangents, 2)}, {},
      x_n);
  State end = x_n;
  end.z = x_n.z + g.value;
  if (x_n.tangents.defined()) end.tangents = x_n.tangents + g.tangents;
  return end;
}

State TensorSpace::Correction(const PerRow& eps, const PerRow& s, const State& z,
                              std::span<const State> slopes, const State& z_first) const {
  std::vector<at::Tensor> values, tangents;
  const auto add = [&](const State& input) {
    values.push_back(input.z);
    if (z.tangents.defined()) tangents.push_back(input.tangents);
  };
  const auto add_constant = [&](const PerRow& per_row) {
    std::vector<int64_t> shape(z.z.sizes().begin(), z.z.sizes().end());
    shape[1] = 1;
    State constant{OverRows(RowTensor(per_row, z.z.options()), z.z, 0).expand(shape), {}, {}};
    shape.insert(shape.begin(), z.tangents.defined() ? z.tangents.size(0) : 0);
    constant.tangents = at::zeros(shape, z.z.options());
    add(constant);
  };
  for (const CorrectionInput input : options_.correction_inputs) {
    switch (input) {
      case CorrectionInput::kState:
        add(z);
        break;
      case CorrectionInput::kSlope1:
        add(slopes[0]);
        break;
      case CorrectionInput::kSlope2:
        add(slopes[1]);
        break;
      case CorrectionInput::kState0:
        add(z_first);
        break;
      case CorrectionInput::kStep:
        add_constant(eps);
        break;
      case CorrectionInput::kDepth:
        add_constant(s);
        break;
      case CorrectionInput::kSlopes:  // of readouts only
        break;
    }
  }
  const Dual inputs{at::cat(values, 1), tangents.empty() ? at::Tensor() : at::cat(tangents, 2)};
  const Dual g = Evaluate(*options_.correction, inputs, s, z);
  State result{.z = g.value, .tangents = g.tangents, .log_density = {}};
  if (z.log_density.defined()) result.log_density = at::zeros_like(z.log_density);
  return result;
}

}  // namespace hyperserve
