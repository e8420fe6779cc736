#include "core/model/net/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/layers/kind.h"
#include "core/model/layers/layer.h"
#include "core/model/net/field_package.h"
#include "core/model/net/net.h"
#include "core/model/net/table.h"
#include "core/model/repository/repository.h"
#include "core/plan/plan.h"
#include "core/plan/step_grid.h"

namespace hyperserve {
namespace {

constexpr char kModelJson[] = "model.json";
constexpr char kHypersolverJson[] = "hypersolver.json";
constexpr char kWeightsFile[] = "weights.safetensors";

using Nets = std::map<std::string, LayerList, std::less<>>;

// PyTorch's counter of batches, which eval mode does not use.
bool IsIgnored(std::string_view name) {
  constexpr std::string_view kCounter = ".num_batches_tracked";
  return name.size() >= kCounter.size() && name.substr(name.size() - kCounter.size()) == kCounter;
}

using Shapes = std::map<std::string, Shape>;

// Copies a tensor out of the file in pieces, and gives each back at once: a large file is never
// held twice. kInvalidArgument: a number is not finite in float32.
absl::StatusOr<at::Tensor> TakeTensor(const TensorView& view, SafetensorsFile& file) {
  constexpr size_t kPieceBytes = size_t{8} << 20;
  const at::Tensor tensor = at::empty(view.shape, at::TensorOptions(ScalarTypeOf(view.dtype)));
  const at::Tensor flat = tensor.flatten();
  const auto width = static_cast<int64_t>(DtypeSize(view.dtype));
  for (size_t at = 0; at < view.bytes.size(); at += kPieceBytes) {
    const auto piece = view.bytes.subspan(at, std::min(kPieceBytes, view.bytes.size() - at));
    std::memcpy(static_cast<std::byte*>(tensor.data_ptr()) + at, piece.data(), piece.size());
    file.Release(piece);
    const at::Tensor copied = flat.narrow(0, static_cast<int64_t>(at) / width,
                                          static_cast<int64_t>(piece.size()) / width);
    if (!at::isfinite(copied.to(at::kFloat)).all().item<bool>()) {
      return absl::InvalidArgumentError("holds a number that is not finite in float32");
    }
  }
  return tensor;
}

// `coefficients`: tensors beside those of the nets, by name.
absl::StatusOr<TensorMap> ReadTensors(SafetensorsFile& file, const Nets& nets,
                                      const Shapes& coefficients) {
  Shapes expected = coefficients;
  for (const auto& [prefix, layers] : nets) expected.merge(ExpectedTensors(layers, prefix));
  TensorMap tensors;
  for (const auto& [name, view] : file.tensors()) {
    if (IsIgnored(name)) continue;
    if (expected.find(name) == expected.end()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' ", ShapeText(view.shape),
                                                     " is not one that the spec expects"));
    }
    if (!IsFloating(view.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' is not of a floating type (F32, F64, F16 or BF16)"));
    }
    absl::StatusOr<at::Tensor> tensor = TakeTensor(view, file);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' ", tensor.status().message()));
    }
    if (absl::EndsWith(name, "running_var") && !(*tensor >= 0).all().item<bool>()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' holds a negative variance"));
    }
    tensors[name] = *std::move(tensor);
  }
  HS_RETURN_IF_ERROR(CheckShapes(coefficients, tensors));
  return tensors;
}

absl::StatusOr<SafetensorsFile> ParseWeights(std::string bytes) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse(std::move(bytes));
  if (!file.ok()) return Annotate(file.status(), kWeightsFile);
  return file;
}

using Code = std::map<std::string, Net, std::less<>>;

absl::StatusOr<std::unique_ptr<const NetWeights>> ReadWeights(SafetensorsFile file, Nets nets,
                                                              const Shapes& coefficients = {},
                                                              Code code = {}) {
  using Result = absl::StatusOr<std::unique_ptr<const NetWeights>>;
  Result weights = CatchExceptions("reading weights", [&]() -> Result {
    HS_ASSIGN_OR_RETURN(TensorMap tensors, ReadTensors(file, nets, coefficients));
    return NetWeights::Make(std::move(nets), std::move(tensors), std::move(code));
  });
  if (!weights.ok()) return Annotate(weights.status(), kWeightsFile);
  return weights;
}

// Reads a file of a folder; the message of a failure names it.
absl::StatusOr<std::string> ReadPart(const std::string& folder, const char* name,
                                     const int64_t bytes_max) {
  return ReadFile(absl::StrCat(folder, "/", name), bytes_max);
}

}  // namespace

struct Model::Contents {
  ModelSpec spec;
  std::string base_digest;
  Shape state_shape;
  int64_t state_elements = 0, input_elements = 0, outputs = 0;
  int64_t stem_macs = 0, field_macs = 0, head_macs = 0;
  bool solvable = false;
  std::unique_ptr<const NetWeights> weights;
};

Model::Model(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Model::~Model() = default;

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& folder,
                                                         FieldCode code) {
  HS_ASSIGN_OR_RETURN(const std::string json, ReadPart(folder, kModelJson, kModelJsonBytesMax));
  HS_ASSIGN_OR_RETURN(std::string bytes, ReadPart(folder, kWeightsFile, kModelWeightsBytesMax));
  HS_ASSIGN_OR_RETURN(const std::string package, ReadFieldPackage(folder));
  absl::StatusOr<SafetensorsFile> weights = ParseWeights(std::move(bytes));
  if (!weights.ok()) return Annotate(weights.status(), folder);
  absl::StatusOr<std::shared_ptr<const Model>> model =
      FromFile(json, *std::move(weights), package, code);
  if (!model.ok()) return Annotate(model.status(), folder);
  return model;
}

absl::StatusOr<std::shared_ptr<const Model>> Model::FromBytes(const std::string& model_json,
                                                              std::string weights) {
  HS_ASSIGN_OR_RETURN(SafetensorsFile file, ParseWeights(std::move(weights)));
  return FromFile(model_json, std::move(file));
}

absl::StatusOr<std::shared_ptr<const Model>> Model::FromFile(const std::string& model_json,
                                                             SafetensorsFile weights,
                                                             const std::string& field_package,
                                                             FieldCode code) {
  absl::StatusOr<ModelSpec> spec = ParseModelSpec(model_json);
  if (!spec.ok()) return Annotate(spec.status(), kModelJson);
  auto contents = std::make_unique<Contents>();
  HS_ASSIGN_OR_RETURN(contents->state_shape, StateShape(*spec));
  HS_ASSIGN_OR_RETURN(contents->stem_macs, CountMacs(spec->stem, spec->input.shape));
  HS_ASSIGN_OR_RETURN(contents->field_macs, CountMacs(spec->field, contents->state_shape));
  if (spec->field_package) contents->field_macs = spec->field_package->macs;
  HS_ASSIGN_OR_RETURN(contents->head_macs, CountMacs(spec->head, contents->state_shape));
  if (HasOutputs(spec->kind)) {
    HS_ASSIGN_OR_RETURN(const Shape output, OutputShape(spec->head, contents->state_shape));
    contents->outputs = output[0];
  }
  contents->state_elements = *ElementCount(contents->state_shape);
  contents->input_elements = *ElementCount(spec->input.shape);
  contents->base_digest = BaseDigest(model_json, weights.bytes(), field_package);
  const auto package = TakeFieldPackage(*spec, contents->state_shape, field_package, code);
  if (!package.ok()) return Annotate(package.status(), kFieldPackageFile);
  Nets nets = {{"stem", spec->stem}, {"head", spec->head}};
  Code field;
  if (!spec->field_package) nets["field"] = spec->field;
  if (*package != nullptr) field.emplace("field", Net::OfPackage(*package));
  contents->solvable = !spec->field_package || !field.empty();
  HS_ASSIGN_OR_RETURN(contents->weights,
                      ReadWeights(std::move(weights), std::move(nets), {}, std::move(field)));
  contents->spec = *std::move(spec);
  return std::shared_ptr<const Model>(new Model(std::move(contents)));
}

const ModelSpec& Model::spec() const { return contents_->spec; }
const std::string& Model::base_digest() const { return contents_->base_digest; }
const Shape& Model::state_shape() const { return contents_->state_shape; }
int64_t Model::state_elements() const { return contents_->state_elements; }
int64_t Model::input_elements() const { return contents_->input_elements; }
int64_t Model::outputs() const { return contents_->outputs; }
int64_t Model::stem_macs() const { return contents_->stem_macs; }
int64_t Model::field_macs() const { return contents_->field_macs; }
int64_t Model::head_macs() const { return contents_->head_macs; }
bool Model::solvable() const { return contents_->solvable; }
const NetWeights& Model::weights() const { return *contents_->weights; }

struct Hypersolver::Contents {
  HypersolverSpec spec;
  int64_t macs = 0;
  std::map<int64_t, TableFacts> tables;
  std::unique_ptr<const NetWeights> weights;
  std::unique_ptr<const BoundTables> bound;
};

namespace {

// The nodes s_i of a table: ascending is not asked for, within the span is.
absl::StatusOr<std::vector<double>> ReadNodes(const HypersolverSpec& spec, const TableSpec& table,
                                              const NetWeights& weights) {
  if (table.evaluations == 0) return std::vector<double>();
  const std::string name = TablePrefix(table.evaluations) + ".depth";
  const at::Tensor depth = weights.stored().at(name).to(at::kDouble).contiguous();
  std::vector<double> nodes(depth.data_ptr<double>(), depth.data_ptr<double>() + depth.numel());
  // Files hold float32: an end of the span is rounded there.
  const double slack = 1e-6 * std::max(std::abs(spec.span[0]), std::abs(spec.span[1]));
  for (double& node : nodes) {
    if (node >= spec.span[0] - slack && node <= spec.span[1] + slack) {
      node = std::clamp(node, spec.span[0], spec.span[1]);
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' holds ", node,
                                                   ", outside the span [", spec.span[0], ", ",
                                                   spec.span[1], "]"));
  }
  return nodes;
}

absl::StatusOr<int64_t> TableMacs(const TableSpec& table, const Shape& state_shape) {
  HS_ASSIGN_OR_RETURN(const Shape input, CorrectionInputShape(table, state_shape));
  HS_ASSIGN_OR_RETURN(int64_t macs, CountMacs(table.net, input));
  if (table.coefficients == Coefficients::kMap) {
    const int64_t n = table.evaluations, maps = n + n * (n + 1) / 2;
    HS_ASSIGN_OR_RETURN(const int64_t one, CountMacs({MapLayer(state_shape)}, state_shape));
    macs += maps * one;
  }
  return macs;
}

// Of numbers and of one number a channel too: nothing that is computed for a bound is free.
absl::StatusOr<int64_t> DistanceMacs(const TableSpec& table, const Shape& state_shape) {
  if (!table.distance) return 0;
  int64_t one = *ElementCount(state_shape);
  if (*table.distance == Coefficients::kMap) {
    HS_ASSIGN_OR_RETURN(one, CountMacs({MapLayer(state_shape)}, state_shape));
  }
  return (table.evaluations + 2) * one;
}

}  // namespace

Hypersolver::Hypersolver(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
Hypersolver::~Hypersolver() = default;

absl::StatusOr<std::shared_ptr<const Hypersolver>> Hypersolver::Load(const std::string& folder,
                                                                     const Model& model) {
  HS_ASSIGN_OR_RETURN(const std::string json,
                      ReadPart(folder, kHypersolverJson, kModelJsonBytesMax));
  HS_ASSIGN_OR_RETURN(const std::string weights,
                      ReadPart(folder, kWeightsFile, kModelWeightsBytesMax));
  absl::StatusOr<std::shared_ptr<const Hypersolver>> correction = FromBytes(json, weights, model);
  if (!correction.ok()) return Annotate(correction.status(), folder);
  return correction;
}

absl::Status Hypersolver::FillTables(const std::string& weights, const Shape& state_shape,
                                     Contents& contents) {
  Nets nets;
  Shapes coefficients;
  for (const TableSpec& table : contents.spec.tables) {
    if (!table.net.empty()) nets[TablePrefix(table.evaluations) + ".net"] = table.net;
    coefficients.merge(ExpectedCoefficients(table, state_shape));
  }
  HS_ASSIGN_OR_RETURN(SafetensorsFile file, ParseWeights(weights));
  HS_ASSIGN_OR_RETURN(contents.weights,
                      ReadWeights(std::move(file), std::move(nets), coefficients));
  for (const TableSpec& table : contents.spec.tables) {
    TableFacts& facts = contents.tables[table.evaluations];
    facts.spec = &table;
    HS_ASSIGN_OR_RETURN(facts.macs, TableMacs(table, state_shape));
    HS_ASSIGN_OR_RETURN(facts.distance_macs, DistanceMacs(table, state_shape));
    HS_ASSIGN_OR_RETURN(facts.nodes, ReadNodes(contents.spec, table, *contents.weights));
    contents.macs = std::max(contents.macs, facts.macs);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Hypersolver>> Hypersolver::FromBytes(
    const std::string& hypersolver_json, const std::string& weights, const Model& model) {
  absl::StatusOr<HypersolverSpec> spec =
      ParseHypersolverSpec(hypersolver_json, model.state_shape());
  if (!spec.ok()) return Annotate(spec.status(), kHypersolverJson);
  if (spec->base_digest != model.base_digest()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kHypersolverJson, ": base_digest: made for the model ", spec->base_digest,
                     ", this model is ", model.base_digest()));
  }
  const bool flow = model.spec().kind == ModelKind::kFlow;
  if (!flow && spec->direction != Direction::kForward) {
    return absl::InvalidArgumentError(absl::StrCat(kHypersolverJson, ": direction: a ",
                                                   Absl(ModelKindName(model.spec().kind)),
                                                   " is solved forward only"));
  }
  if (spec->learned() && model.spec().kind == ModelKind::kTrajectory) {
    return absl::InvalidArgumentError(absl::StrCat(
        kHypersolverJson,
        ": method: a learned solver gives no states on the way, which are a trajectory's answer"));
  }
  const Shape& condition = model.spec().condition;
  HS_RETURN_IF_ERROR(Annotate(CheckCondition(spec->net, condition, "net"), kHypersolverJson));
  for (const TableSpec& table : spec->tables) {
    const std::string path = TablePrefix(table.evaluations) + ".net";
    HS_RETURN_IF_ERROR(Annotate(CheckCondition(table.net, condition, path), kHypersolverJson));
  }
  auto contents = std::make_unique<Contents>();
  contents->spec = *std::move(spec);
  const Shape& state = model.state_shape();
  if (contents->spec.learned()) {
    HS_RETURN_IF_ERROR(CatchExceptions("reading the tables of a learned solver",
                                       [&] { return FillTables(weights, state, *contents); }));
  } else {
    HS_ASSIGN_OR_RETURN(const Shape input, CorrectionInputShape(contents->spec, state));
    HS_ASSIGN_OR_RETURN(contents->macs, CountMacs(contents->spec.net, input));
    HS_ASSIGN_OR_RETURN(SafetensorsFile file, ParseWeights(weights));
    HS_ASSIGN_OR_RETURN(contents->weights,
                        ReadWeights(std::move(file), {{"net", contents->spec.net}}));
  }
  contents->bound = std::make_unique<BoundTables>(contents->weights.get(), state);
  return std::shared_ptr<const Hypersolver>(new Hypersolver(std::move(contents)));
}

const HypersolverSpec& Hypersolver::spec() const { return contents_->spec; }
int64_t Hypersolver::macs() const { return contents_->macs; }
const NetWeights& Hypersolver::weights() const { return *contents_->weights; }
const BoundTables& Hypersolver::tables() const { return *contents_->bound; }
const Hypersolver::TableFacts* Hypersolver::table(int64_t evaluations) const {
  const auto found = contents_->tables.find(evaluations);
  return found == contents_->tables.end() ? nullptr : &found->second;
}

namespace {

// A range in decimals must contain the step sizes that it stands for: 1/3 in "0.3333".
constexpr double kEpsSlack = 1e-3;

absl::Status CheckTable(const Hypersolver& solver, const FixedPlan& plan,
                        const std::array<double, 2>& span) {
  const HypersolverSpec& spec = solver.spec();
  if (span != spec.span) {
    return absl::FailedPreconditionError(
        absl::StrCat("the learned solver was fitted on the span [", spec.span[0], ", ",
                     spec.span[1], "], the solve runs on [", span[0], ", ", span[1], "]"));
  }
  if (solver.table(plan.steps) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the learned solver has no table of ",
                                                    plan.steps, " evaluations; it has ",
                                                    absl::StrJoin(spec.steps, ", ")));
}

// The K whose steps lie in the range, in words: one run of numbers.
std::string ServedSteps(const HypersolverSpec& spec, const std::array<double, 2>& span) {
  const double length = span[1] - span[0];
  const double first = std::max(1.0, std::ceil(length / spec.eps[1] / (1 + kEpsSlack)));
  const double last = std::floor(length / spec.eps[0] / (1 - kEpsSlack));
  if (!(first <= last)) return "no number of steps fits this span";
  return first == last ? absl::StrCat("K = ", first, " is served on this span")
                       : absl::StrCat("K = ", first, " to ", last, " are served on this span");
}

}  // namespace

absl::Status CheckApplies(const Hypersolver& correction, const FixedPlan& plan, Direction direction,
                          const std::array<double, 2>& span) {
  const HypersolverSpec& spec = correction.spec();
  if (!(plan.method == spec.method)) {
    return absl::FailedPreconditionError(absl::StrCat("the correction is for ",
                                                      PrintMethod(spec.method), ", the plan asks ",
                                                      PrintMethod(plan.method)));
  }
  if (direction != spec.direction) {
    return absl::FailedPreconditionError(
        absl::StrCat("the correction was trained ", std::string(DirectionName(spec.direction)),
                     ", the solve runs ", std::string(DirectionName(direction))));
  }
  if (spec.learned()) return CheckTable(correction, plan, span);
  const double length = span[1] - span[0];
  const StepShares shares = ExtremeSteps(plan.grid, plan.steps);
  for (const double share : {shares.shortest, shares.longest}) {
    const double eps = plan.grid.uniform() ? length / plan.steps : length * share;
    const double slack = kEpsSlack * eps;
    if (eps >= spec.eps[0] - slack && eps <= spec.eps[1] + slack) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("step size ", eps, " lies outside [", spec.eps[0], ", ", spec.eps[1],
                     "], on which the correction was trained; ", ServedSteps(spec, span),
                     plan.grid.uniform() ? "" : " in equal steps"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
