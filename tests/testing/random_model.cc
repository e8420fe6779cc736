#include "tests/testing/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/io/philox.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/depth.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/spec/spec.h"
#include "core/ode/solver_table.h"
#include "core/plan/method.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve::fixture {
namespace {

// value() of a StatusOr; prints the error and aborts where there is none.
template <class Value>
Value Take(absl::StatusOr<Value> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::abort();
  }
  return *std::move(result);
}

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

Layer Linear(int64_t in, int64_t out) { return {LinearLayer{.in = in, .out = out}}; }
Layer Conv(int64_t in, int64_t out) {
  return {Conv2dLayer{.in = in, .out = out, .kernel = 3, .padding = 1}};
}

}  // namespace

std::string RandomWeights(const std::map<std::string, Shape>& tensors, uint64_t seed) {
  std::vector<NamedTensor> named;
  for (const auto& [name, shape] : tensors) {
    const int64_t elements = *ElementCount(shape);
    NamedTensor tensor{.name = name, .shape = shape, .values = {}};
    tensor.values.resize(static_cast<size_t>(elements));
    PhiloxNormals(seed, named.size(), 1, elements, tensor.values);
    const double fan_in = static_cast<double>(elements) / static_cast<double>(shape[0]);
    const bool near_one =
        EndsWith(name, "running_var") || (shape.size() == 1 && EndsWith(name, "weight"));
    for (double& value : tensor.values) {
      value = near_one ? 1.0 + 0.2 * std::tanh(value) : value / std::sqrt(fan_in);
      if (EndsWith(name, ".depth")) value = 0.5 + 0.4 * std::tanh(value);
    }
    named.push_back(std::move(tensor));
  }
  return SafetensorsOf(named);
}

std::shared_ptr<const Model> RandomModel(const ModelSpec& spec, uint64_t seed) {
  std::map<std::string, Shape> tensors = ExpectedTensors(spec.stem, "stem");
  tensors.merge(ExpectedTensors(spec.field, "field"));
  tensors.merge(ExpectedTensors(spec.head, "head"));
  return Take(Model::FromBytes(PrintModelSpec(spec), RandomWeights(tensors, seed)));
}

std::shared_ptr<const Hypersolver> RandomHypersolver(HypersolverSpec spec, const Model& model,
                                                     uint64_t seed) {
  spec.base_digest = model.base_digest();
  std::map<std::string, Shape> tensors = ExpectedTensors(spec.net, "net");
  for (const TableSpec& table : spec.tables) {
    tensors.merge(ExpectedCoefficients(table, model.state_shape()));
    tensors.merge(ExpectedTensors(table.net, TablePrefix(table.evaluations) + ".net"));
  }
  return Take(
      Hypersolver::FromBytes(PrintHypersolverSpec(spec), RandomWeights(tensors, seed), model));
}

ModelSpec FlowSpec() {
  ModelSpec spec;
  spec.kind = ModelKind::kFlow;
  spec.direction = Direction::kDataToNoise;
  spec.input.shape = {2};
  spec.field = {{DepthCatLayer{}}, Linear(3, 30),     {TanhLayer{}},
                Linear(30, 31),    {SoftplusLayer{}}, Linear(31, 2)};
  return spec;
}

HypersolverSpec FlowCorrectionSpec() {
  HypersolverSpec spec;
  spec.method = {.method = Method::kHeun};
  spec.direction = Direction::kNoiseToData;
  spec.eps = {0.05, 1.0};
  spec.steps = {1, 2};
  spec.inputs = {CorrectionInput::kState, CorrectionInput::kSlope1, CorrectionInput::kSlope2,
                 CorrectionInput::kStep, CorrectionInput::kDepth};
  spec.net = {Linear(8, 17), {SiluLayer{}}, Linear(17, 2)};
  return spec;
}

ModelSpec ConditionalFlowSpec() {
  ModelSpec spec = FlowSpec();
  spec.condition = {3};
  spec.field = {{ConditionCatLayer{.features = 3}},
                {DepthCatLayer{}},
                Linear(6, 30),
                {TanhLayer{}},
                {ConditionFilmLayer{.features = 3, .layers = {Linear(3, 60)}}},
                Linear(30, 31),
                {SoftplusLayer{}},
                Linear(31, 2)};
  return spec;
}

ModelSpec GuidedFlowSpec() {
  ModelSpec spec = ConditionalFlowSpec();
  spec.no_condition = {0.5, -1, 2};
  return spec;
}

HypersolverSpec ConditionalCorrectionSpec() {
  HypersolverSpec spec = FlowCorrectionSpec();
  spec.net = {{ConditionCatLayer{.features = 3, .first = true}},
              Linear(11, 17),
              {SiluLayer{}},
              Linear(17, 2)};
  return spec;
}

ModelSpec ImageSpec() {
  ModelSpec spec;
  spec.input = {.shape = {1, 12, 12}, .unit_range = true, .mean = {0.25}, .deviation = {0.5}};
  spec.stem = {{BatchNormLayer{.channels = 1}}, {AugmentLayer{.layers = {Conv(1, 7)}}}};
  spec.field = {Conv(8, 11), {SoftplusLayer{}}, Conv(11, 9), {TanhLayer{}}, Conv(9, 8)};
  spec.head = {{MeanPoolLayer{}}, Linear(8, 5)};
  return spec;
}

HypersolverSpec ImageCorrectionSpec() {
  HypersolverSpec spec;
  spec.method = {.method = Method::kEuler};
  spec.eps = {0.1, 1.0};
  spec.steps = {1, 2};
  spec.inputs = {CorrectionInput::kState, CorrectionInput::kSlope1, CorrectionInput::kStep};
  spec.net = {Conv(17, 6), {PreluLayer{.slopes = 1}}, Conv(6, 8)};
  return spec;
}

HypersolverSpec TablesSpec(const Model& model, Direction direction, Coefficients kind) {
  HypersolverSpec spec;
  spec.method = {.method = Method::kLearned};
  spec.direction = direction;
  spec.base_digest = model.base_digest();
  spec.span = model.spec().span;
  const int64_t channels = model.state_shape()[0];
  const bool flow = model.spec().kind == ModelKind::kFlow;
  const auto mix = [&](int64_t inputs) {
    return LayerList{flow ? Linear(inputs * channels, channels)
                          : Conv(inputs * channels, channels)};
  };
  spec.tables = {
      {.evaluations = 1,
       .coefficients = kind,
       .inputs = {CorrectionInput::kState0, CorrectionInput::kState, CorrectionInput::kSlopes},
       .net = mix(3)},
      {.evaluations = 3, .coefficients = kind, .inputs = {}, .net = {}}};
  return spec;
}

HypersolverSpec FlowTablesSpec(const Model& model, Coefficients kind) {
  HypersolverSpec spec = TablesSpec(model, Direction::kNoiseToData, kind);
  spec.tables.insert(spec.tables.begin(), {.evaluations = 0,
                                           .coefficients = kind,
                                           .inputs = {CorrectionInput::kState},
                                           .net = {Linear(2, 7), {TanhLayer{}}, Linear(7, 2)}});
  return spec;
}

GenerationBytes LearnedFrom(const std::vector<FixedPlan>& plans, Coefficients kind,
                            const Model& model, Direction direction) {
  HypersolverSpec spec = TablesSpec(model, direction, kind);
  spec.tables.clear();
  const int64_t channels = model.state_shape()[0];
  std::map<std::string, HostTensor> tensors;  // F64: as exact as the plans
  for (const FixedPlan& plan : plans) {
    const auto table = ClassicalTable(plan, spec.span[0], spec.span[1]);
    const TableSpec entry = {
        .evaluations = table.evaluations(), .coefficients = kind, .distance = kind};
    std::map<std::string, Shape> shapes = ExpectedCoefficients(entry, model.state_shape());
    const std::string prefix = TablePrefix(table.evaluations());
    const auto add = [&](const std::string& name, const std::vector<double>& values) {
      HostTensor tensor = HostTensor::Zeros(Dtype::kF64, shapes.at(name));
      std::copy(values.begin(), values.end(), tensor.as<double>().begin());
      tensors[name] = std::move(tensor);
    };
    // Each number for every channel, or on the diagonal of a map.
    const auto spread = [&](const std::vector<double>& numbers) {
      std::vector<double> values;
      const int64_t rows = kind == Coefficients::kScalar ? 1 : channels;
      const int64_t columns = kind == Coefficients::kMap ? channels : 1;
      for (const double number : numbers) {
        for (int64_t i = 0; i < rows * columns; ++i) {
          values.push_back(columns == 1 || i / columns == i % columns ? number : 0.0);
        }
      }
      return values;
    };
    std::vector<double> slopes;
    for (const auto& row : table.slopes) slopes.insert(slopes.end(), row.begin(), row.end());
    add(prefix + ".state", spread(table.state));
    add(prefix + ".slopes", spread(slopes));
    add(prefix + ".offset",
        std::vector<double>(static_cast<size_t>(channels * table.evaluations())));
    add(prefix + ".depth", table.nodes);
    // z(s1) - x_0 - (s1 - s0) k_0
    std::vector<double> distance(static_cast<size_t>(table.evaluations() + 2));
    distance[0] = 1;
    distance[1] = -1;
    distance[2] = spec.span[0] - spec.span[1];
    add(prefix + ".distance", spread(distance));
    add(prefix + ".distance_offset", std::vector<double>(static_cast<size_t>(channels)));
    spec.tables.push_back(entry);
  }
  std::sort(spec.tables.begin(), spec.tables.end(),
            [](const TableSpec& a, const TableSpec& b) { return a.evaluations < b.evaluations; });
  std::map<std::string, TensorView, std::less<>> views;
  for (const auto& [name, tensor] : tensors) views[name] = tensor.view();
  return {PrintHypersolverSpec(spec), SerializeSafetensors(views)};
}

}  // namespace hyperserve::fixture
