#include "tests/golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/tensor.h"
#include "core/model/layers/activations.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/joins.h"
#include "core/model/layers/layer.h"
#include "core/model/layers/norms.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

using Tensors = std::map<std::string, TensorView, std::less<>>;

Layer Linear(int64_t in, int64_t out) { return {LinearLayer{.in = in, .out = out}}; }
Layer Conv(int64_t in, int64_t out) {
  return {Conv2dLayer{.in = in, .out = out, .kernel = 3, .padding = 1}};
}
Layer Softplus() { return {SoftplusLayer{}}; }
Layer Selu() { return {SeluLayer{}}; }
Layer Prelu() { return {PreluLayer{.slopes = 1}}; }

// The tensors named <from>.<part> as <to>.<part>.
void Rename(const SafetensorsFile& file, const std::string& from, const std::string& to,
            Tensors& tensors) {
  for (const auto& [name, view] : file.tensors()) {
    if (name.rfind(from + ".", 0) == 0) tensors[to + name.substr(from.size())] = view;
  }
}

struct Parts {
  ModelSpec model;
  HypersolverSpec correction;
  Tensors model_tensors, correction_tensors;
};

Parts VisionParts(const SafetensorsFile& file) {
  Parts parts;
  parts.model = {.kind = ModelKind::kClassifier,
                 .input = {.shape = {1, 28, 28}, .unit_range = true, .mean = {}, .deviation = {}},
                 .stem = {{BatchNormLayer{.channels = 1}}, {AugmentLayer{.layers = {Conv(1, 31)}}}},
                 .field = {Conv(32, 46), Softplus(), Conv(46, 46), Softplus(), Conv(46, 32)},
                 .head = {{MeanPoolLayer{}}, Linear(32, 10)},
                 .labels = {}};
  parts.correction = {
      .method = {.method = Method::kEuler},
      .direction = Direction::kForward,
      .eps = {0.1, 1.0},
      .steps = {1, 2, 4},
      .inputs = {CorrectionInput::kState, CorrectionInput::kSlope1, CorrectionInput::kStep},
      .net = {Conv(65, 32), Prelu(), Conv(32, 32), Prelu(), Conv(32, 32)},
      .base_digest = {},
      .provenance = {}};
  Rename(file, "model.bn", "stem.0", parts.model_tensors);
  Rename(file, "model.aug", "stem.1.layers.0", parts.model_tensors);
  Rename(file, "model.f", "field", parts.model_tensors);
  Rename(file, "model.head", "head.1", parts.model_tensors);
  Rename(file, "hyper.g", "net", parts.correction_tensors);
  return parts;
}

Parts FlowParts(const SafetensorsFile& file) {
  Parts parts;
  parts.model = {.kind = ModelKind::kFlow,
                 .direction = Direction::kDataToNoise,
                 .input = {.shape = {2}, .unit_range = false, .mean = {}, .deviation = {}},
                 .stem = {},
                 .field = {Linear(2, 128), Softplus(), Linear(128, 128), Softplus(),
                           Linear(128, 128), Softplus(), Linear(128, 2)},
                 .head = {},
                 .labels = {}};
  parts.correction = {
      .method = {.method = Method::kHeun},
      .direction = Direction::kNoiseToData,
      .eps = {1.0, 1.0},
      .steps = {1},
      .inputs = {CorrectionInput::kState, CorrectionInput::kSlope1, CorrectionInput::kStep},
      .net = {Linear(5, 128), Prelu(), Linear(128, 2)},
      .base_digest = {},
      .provenance = {}};
  for (int i = 0; i < 4; ++i) {  // model.l counts linear layers, our names count all
    Rename(file, absl::StrCat("model.l.", i), absl::StrCat("field.", 2 * i), parts.model_tensors);
  }
  Rename(file, "hyper.g", "net", parts.correction_tensors);
  return parts;
}

// The nets of TorchCFM: net.<i> counts all layers of an nn.Sequential, which sees cat[x, t].
Parts TorchCfmParts(const SafetensorsFile& file) {
  Parts parts;
  parts.model.kind = ModelKind::kFlow;
  parts.model.direction = Direction::kNoiseToData;
  parts.model.input.shape = {2};
  parts.model.field = {{DepthCatLayer{}}, Linear(3, 64), Selu(),       Linear(64, 64), Selu(),
                       Linear(64, 64),    Selu(),        Linear(64, 2)};
  for (int i = 0; i < 7; i += 2) {
    Rename(file, absl::StrCat("net.", i), absl::StrCat("field.", i + 1), parts.model_tensors);
  }
  return parts;
}

std::vector<double> Doubles(Dtype dtype, std::span<const std::byte> bytes) {
  std::vector<double> numbers(bytes.size() / DtypeSize(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    float single = 0;
    if (dtype == Dtype::kF32) {
      std::memcpy(&single, bytes.data() + i * sizeof(single), sizeof(single));
      numbers[i] = single;
    } else {
      std::memcpy(&numbers[i], bytes.data() + i * sizeof(double), sizeof(double));
    }
  }
  return numbers;
}

std::string Folder(const char* variable, const char* otherwise) {
  const char* chosen = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return chosen == nullptr ? otherwise : chosen;
}

}  // namespace

std::string GoldenFolder() { return Folder("HYPERSERVE_GOLDEN", HYPERSERVE_GOLDEN_DEFAULT); }
std::string ExternalFolder() { return Folder("HYPERSERVE_EXTERNAL", HYPERSERVE_EXTERNAL_DEFAULT); }

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& name) {
  const std::string folder = absl::StrCat(GoldenFolder(), "/", name);
  if (!std::filesystem::exists(folder)) return absl::NotFoundError(folder);
  HS_ASSIGN_OR_RETURN(const SafetensorsFile weights,
                      SafetensorsFile::Open(folder + "/weights.safetensors"));
  HS_ASSIGN_OR_RETURN(SafetensorsFile answers, SafetensorsFile::Open(folder + "/gold.safetensors"));
  Parts parts = name == "vision_fashion" ? VisionParts(weights) : FlowParts(weights);
  HS_ASSIGN_OR_RETURN(
      std::shared_ptr<const Model> model,
      Model::FromBytes(PrintModelSpec(parts.model), SerializeSafetensors(parts.model_tensors)));
  parts.correction.base_digest = model->base_digest();
  HS_ASSIGN_OR_RETURN(
      std::shared_ptr<const Hypersolver> correction,
      Hypersolver::FromBytes(PrintHypersolverSpec(parts.correction),
                             SerializeSafetensors(parts.correction_tensors), *model));
  return GoldenCase{std::move(model), std::move(correction), std::move(answers)};
}

absl::StatusOr<GoldenCase> LoadExternalCase(const std::string& name) {
  const std::string path = absl::StrCat(ExternalFolder(), "/torchcfm/", name);
  if (!std::filesystem::exists(path + ".safetensors")) return absl::NotFoundError(path);
  HS_ASSIGN_OR_RETURN(const SafetensorsFile weights, SafetensorsFile::Open(path + ".safetensors"));
  HS_ASSIGN_OR_RETURN(SafetensorsFile answers, SafetensorsFile::Open(path + ".gold.safetensors"));
  const Parts parts = TorchCfmParts(weights);
  HS_ASSIGN_OR_RETURN(
      std::shared_ptr<const Model> model,
      Model::FromBytes(PrintModelSpec(parts.model), SerializeSafetensors(parts.model_tensors)));
  return GoldenCase{std::move(model), nullptr, std::move(answers)};
}

std::vector<GoldenAnswer> FixedAnswers(const GoldenCase& golden, const std::string& prefix) {
  std::vector<GoldenAnswer> answers;
  for (const auto& [name, view] : golden.answers.tensors()) {
    const size_t bar = name.rfind('_');
    int steps = 0;
    if (name.rfind(prefix, 0) != 0 || bar < prefix.size() ||
        !absl::SimpleAtoi(name.substr(bar + 1), &steps)) {
      continue;
    }
    const std::string method = name.substr(prefix.size(), bar - prefix.size());
    const absl::StatusOr<Plan> plan = ParsePlan(absl::StrCat(method, ":", steps));
    if (plan.ok() && plan->fixed() != nullptr) answers.push_back({name, *plan->fixed()});
  }
  return answers;
}

Difference Compare(const HostTensor& ours, const TensorView& answer) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (ours.shape != answer.shape) return {kInfinite, kInfinite};
  const std::vector<double> a = Doubles(ours.dtype, ours.bytes);
  const std::vector<double> b = Doubles(answer.dtype, answer.bytes);
  Difference difference;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return {kInfinite, kInfinite};
    difference.absolute = std::max(difference.absolute, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  difference.relative = difference.absolute / largest;
  return difference;
}

}  // namespace hyperserve
