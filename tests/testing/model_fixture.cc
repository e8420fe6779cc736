#include "tests/testing/model_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/io/file.h"
#include "core/io/philox.h"
#include "core/io/safetensors.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/plan.h"

namespace hyperserve {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hyperserve-XXXXXX").string();
  const char* made = mkdtemp(pattern.data());
  if (made == nullptr) std::abort();
  path_ = made;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace fixture {

std::string ShippedModels() {
  const char* chosen = std::getenv("HYPERSERVE_MODELS");  // NOLINT(concurrency-mt-unsafe)
  return chosen == nullptr ? HYPERSERVE_MODELS_DEFAULT : chosen;
}
namespace {

using Matrix = std::vector<double>;  // square, row-major

Matrix Identity(int64_t n) {
  Matrix result(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) result[i * n + i] = 1.0;
  return result;
}

Matrix Multiply(const Matrix& a, const Matrix& b, int64_t n) {
  Matrix result(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t j = 0; j < n; ++j) result[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
  return result;
}

Matrix Scaled(Matrix a, double factor) {
  for (double& value : a) value *= factor;
  return a;
}

// sum_{k >= first} x^(k - first) A^(k - shift) / k!: with x = eps, first = p + 1 and shift = 0 the
// residual's matrix; with shift = 1 the same without its last factor A.
Matrix TaylorTail(const Matrix& a, int64_t n, double x, int first, int shift) {
  Matrix term = Identity(n);
  double factorial = 1.0;
  Matrix sum(n * n, 0.0);
  for (int k = 0; k < first + 40; ++k) {
    if (k > 0) factorial *= k;
    if (k >= first) {
      const double factor = std::pow(x, k - first) / factorial;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * term[i];
    }
    if (k >= shift) term = Multiply(term, a, n);
  }
  return sum;
}

// The matrix of the field that is solved in this direction.
Matrix SolvedField(const LinearModel& model, Direction direction) {
  const bool against = direction != Direction::kForward && direction != model.direction;
  return Scaled(model.a, against ? -1.0 : 1.0);
}

// 2 A and then 1/2: two layers, exact in float32.
std::vector<NamedTensor> FieldTensors(const Matrix& a, int64_t n) {
  return {{"field.0.weight", {n, n}, Scaled(a, 2.0)},
          {"field.1.weight", {n, n}, Scaled(Identity(n), 0.5)}};
}

std::string LinearJson(int64_t in, int64_t out, std::string_view more = "") {
  return absl::StrCat(R"({"linear": {"in": )", in, R"(, "out": )", out,
                      absl::string_view(more.data(), more.size()), "}}");
}

// All digits: the step size of K = 3 must lie within the range that is printed.
std::string NumberJson(double value) { return absl::StrFormat("%.17g", value); }

std::string FieldJson(int64_t n) {
  const std::string layer = LinearJson(n, n, R"(, "bias": false)");
  return absl::StrCat("[", layer, ", ", layer, "]");
}

}  // namespace

std::string SafetensorsOf(const std::vector<NamedTensor>& tensors) {
  std::vector<std::vector<float>> data;
  std::map<std::string, TensorView, std::less<>> views;
  data.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    data.emplace_back(tensor.values.begin(), tensor.values.end());
    views[tensor.name] = {.dtype = Dtype::kF32,
                          .shape = tensor.shape,
                          .bytes = std::as_bytes(std::span<const float>(data.back()))};
  }
  return SerializeSafetensors(views);
}

LinearModel TinyFlow() {
  LinearModel model = {.name = "tiny_flow",
                       .kind = ModelKind::kFlow,
                       .direction = Direction::kNoiseToData,
                       .input_shape = {2},
                       .dimension = 2,
                       .a = {-0.5, -1.0, 1.0, -0.25}};
  model.model_json =
      absl::StrCat(R"({"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data",)",
                   R"( "input": {"shape": [2]}, "field": )", FieldJson(2), "}\n");
  model.weights = SafetensorsOf(FieldTensors(model.a, 2));
  return model;
}

LinearModel TinyClassifier() {
  LinearModel model = {.name = "tiny_classifier",
                       .kind = ModelKind::kClassifier,
                       .input_shape = {1, 4, 4},
                       .dimension = 4,
                       .a = {-0.5, 0.75, 0.0, 0.25,    //
                             -0.75, -0.5, 0.5, 0.0,    //
                             0.25, -0.5, -0.375, 0.5,  //
                             0.0, 0.25, -0.5, -0.625}};
  model.model_json = absl::StrCat(
      R"({"format": 1, "kind": "classifier", "span": [0, 1],)",
      R"( "input": {"shape": [1, 4, 4], "unit_range": true}, "stem": [{"flatten": {}}, )",
      LinearJson(16, 4), R"(], "field": )", FieldJson(4), R"(, "head": [)", LinearJson(4, 3),
      R"(], "labels": ["low", "middle", "high"]})", "\n");
  std::vector<NamedTensor> tensors = FieldTensors(model.a, 4);
  std::vector<double> stem(size_t{4} * 16), head(size_t{3} * 4);
  for (size_t i = 0; i < stem.size(); ++i) stem[i] = std::cos(1.0 + 2.3 * static_cast<double>(i));
  for (size_t i = 0; i < head.size(); ++i) head[i] = std::sin(0.5 + 1.9 * static_cast<double>(i));
  tensors.push_back({"stem.1.weight", {4, 16}, stem});
  tensors.push_back({"stem.1.bias", {4}, {0.5, -0.25, 0.125, 0.75}});
  tensors.push_back({"head.0.weight", {3, 4}, head});
  tensors.push_back({"head.0.bias", {3}, {0.0, 0.125, -0.125}});
  model.weights = SafetensorsOf(tensors);
  return model;
}

CorrectionOptions DefaultCorrection(const LinearModel& model) {
  if (model.kind == ModelKind::kFlow) {
    return {.method = {.method = Method::kHeun}, .direction = Direction::kNoiseToData};
  }
  return {};
}

HostTensor TinyInputs(const LinearModel& model, int64_t rows) {
  Shape shape = {rows};
  shape.insert(shape.end(), model.input_shape.begin(), model.input_shape.end());
  if (model.kind == ModelKind::kFlow) {
    HostTensor inputs = HostTensor::Zeros(Dtype::kF32, shape);
    std::vector<double> normals(inputs.elements());
    PhiloxNormals(7, 0, rows, model.dimension, normals);
    std::copy(normals.begin(), normals.end(), inputs.as<float>().begin());
    return inputs;
  }
  HostTensor inputs = HostTensor::Zeros(Dtype::kU8, shape);
  uint32_t state = 12345;
  for (uint8_t& pixel : inputs.as<uint8_t>()) {
    state = state * 1664525u + 1013904223u;
    pixel = static_cast<uint8_t>(state >> 24);
  }
  return inputs;
}

GenerationFiles TinyCorrection(const LinearModel& model, const CorrectionOptions& options) {
  const int64_t n = model.dimension;
  const int first = NameOf(options.method.method).order + 1;
  const Matrix solved = SolvedField(model, options.direction);
  const double eps = 1.0 / options.exact_steps;
  const Matrix on_state = Scaled(TaylorTail(solved, n, eps, first, 0), options.scale / 2);
  const Matrix on_slope = Scaled(TaylorTail(solved, n, eps, first, 1), options.scale / 2);
  std::vector<double> weight;
  for (int64_t i = 0; i < n; ++i) {
    weight.insert(weight.end(), &on_state[i * n], &on_state[i * n] + n);
    weight.insert(weight.end(), &on_slope[i * n], &on_slope[i * n] + n);
    weight.push_back(0.0);
  }
  const auto [smallest, largest] = std::minmax_element(options.steps.begin(), options.steps.end());
  const HostTensor probe = TinyInputs(model, 16);
  const std::string_view direction = DirectionName(options.direction);
  GenerationFiles files;
  files["hypersolver.json"] = absl::StrCat(
      R"({"format": 1, "method": ")", PrintMethod(options.method), R"(", "direction": ")",
      absl::string_view(direction.data(), direction.size()), R"(", "eps": [)",
      NumberJson(1.0 / *largest), ", ", NumberJson(1.0 / *smallest), R"(], "steps": [)",
      absl::StrJoin(options.steps, ", "), R"(], "inputs": ["state", "slope_1", "step"], "net": [)",
      LinearJson(2 * n + 1, n, R"(, "bias": false)"), R"(], "base_digest": ")",
      options.base_digest.value_or(BaseDigest(model.model_json, model.weights)),
      R"(", "provenance": {"made_by": "tests/testing/model_fixture"}})", "\n");
  files["weights.safetensors"] = SafetensorsOf({{"net.0.weight", {n, 2 * n + 1}, weight}});
  files["probe.safetensors"] = SerializeSafetensors(
      {{"x", {.dtype = probe.dtype, .shape = probe.shape, .bytes = probe.bytes}}});
  return files;
}

std::vector<double> ExactSolution(const LinearModel& model, Direction direction,
                                  const std::vector<double>& z, double s) {
  const int64_t n = model.dimension;
  const Matrix map = TaylorTail(Scaled(SolvedField(model, direction), s), n, 1.0, 0, 0);
  std::vector<double> result(n, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) result[i] += map[i * n + j] * z[j];
  }
  return result;
}

absl::Status WriteModel(const LinearModel& model, const std::string& repository) {
  const std::string folder = absl::StrCat(repository, "/", model.name);
  std::filesystem::create_directories(folder);
  const Calibration calibration = {.base_digest = BaseDigest(model.model_json, model.weights),
                                   .default_plan = *ParsePlan("dopri5:1e-5"),
                                   .reference = "dopri5:1e-6",
                                   .device = "cpu",
                                   .rows = 16,
                                   .plans = {{.plan = *ParsePlan("ralston:3"),
                                              .error_mean = 0.02,
                                              .error_p99 = 0.03,
                                              .error_max = 0.03,
                                              .nfe = 6,
                                              .macs = 100}}};
  HS_RETURN_IF_ERROR(WriteFileAtomically(folder + "/model.json", model.model_json));
  HS_RETURN_IF_ERROR(WriteFileAtomically(folder + "/weights.safetensors", model.weights));
  return WriteFileAtomically(folder + "/calibration.json", PrintCalibration(calibration));
}

absl::Status WriteTinyRepository(const std::string& repository) {
  for (const LinearModel& model : {TinyClassifier(), TinyFlow()}) {
    HS_RETURN_IF_ERROR(WriteModel(model, repository));
    const CorrectionOptions options = DefaultCorrection(model);
    const std::string folder =
        HypersolverFolder(absl::StrCat(repository, "/", model.name), options.method);
    HS_ASSIGN_OR_RETURN(const int64_t generation,
                        WriteGeneration(folder, TinyCorrection(model, options)));
    HS_RETURN_IF_ERROR(
        WriteVerdicts(folder, {{generation, {.passed = true, .reason = "exact by construction"}}}));
    HS_RETURN_IF_ERROR(WriteActive(folder, generation));
  }
  return absl::OkStatus();
}

}  // namespace fixture
}  // namespace hyperserve
