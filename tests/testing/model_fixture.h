// Tiny linear models with known closed-form answers, as files: a classifier and a flow, with
// hypersolvers that win or that fail in a chosen way. For every test that needs a repository.
//
//   TemporaryFolder folder;
//   ASSERT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());   // tiny_classifier, tiny_flow
//
// The field is f(z) = A z (two linear layers), so z(s) = e^{A s} z(0). Of a method with as many
// stages as its order (euler to rk4_38) the residual is R(eps) z = sum_{k > p} eps^(k-p-1) A^k / k!
// z, a linear map: a net of one linear layer equals it at one eps. TinyCorrection writes scale *
// R(span / exact_steps), half of it on the input `state`, half on `slope_1`, nothing on `step`:
//   scale 1     exact at K = exact_steps (float32 rounding apart), well below the base elsewhere
//   scale 0.5   half the base method's error at K = exact_steps
//   scale 0     the base method itself: does not beat it
//   scale -1    worse than the base method
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/io/tensor.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"

namespace hyperserve {

// A new folder in the system's temporary folder. The destructor removes it with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

namespace fixture {

// The folder of the models that ship, or that of HYPERSERVE_MODELS.
std::string ShippedModels();

// One of the tiny models, span [0, 1].
struct LinearModel {
  std::string name;
  std::string model_json;
  std::string weights;  // bytes of weights.safetensors
  ModelKind kind = ModelKind::kFlow;
  Direction direction = Direction::kForward;  // of the field, as model.json says
  Shape input_shape;                          // of one row
  int64_t dimension = 0;                      // of the state
  std::vector<double> a;                      // A, row-major, exact in float32
};

// "tiny_flow": two dimensions, field from noise to data, A = [[-1/2, -1], [1, -1/4]].
LinearModel TinyFlow();
// "tiny_classifier": images [1, 4, 4] with unit_range; stem flatten, linear 16 -> 4; head linear 4
// -> 3; labels "low", "middle", "high".
LinearModel TinyClassifier();

struct CorrectionOptions {
  MethodChoice method = {.method = Method::kEuler};
  Direction direction = Direction::kForward;  // flows: kNoiseToData or kDataToNoise
  std::vector<int> steps = {1, 2, 4};         // eps range: from the largest to the smallest K
  int exact_steps = 2;
  double scale = 1.0;
  std::optional<std::string> base_digest;  // absent: the model's own
};

// hypersolver.json, weights.safetensors, probe.safetensors (16 rows), without MANIFEST.json.
GenerationFiles TinyCorrection(const LinearModel& model, const CorrectionOptions& options);
// The correction that WriteTinyRepository publishes: heun from noise to data for a flow, euler for
// a classifier.
CorrectionOptions DefaultCorrection(const LinearModel& model);

// Deterministic inputs [rows, input...]: F32 normals for flows, U8 for classifiers.
HostTensor TinyInputs(const LinearModel& model, int64_t rows);

// e^{A s} z, or e^{-A s} z against the field's direction. z has `dimension` numbers.
std::vector<double> ExactSolution(const LinearModel& model, Direction direction,
                                  const std::vector<double>& z, double s);

// The bytes of a safetensors file with one F32 tensor for each name; sizes must match the shapes.
struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<double> values;
};
std::string SafetensorsOf(const std::vector<NamedTensor>& tensors);

// <repository>/<name>/model.json, weights.safetensors and calibration.json (ralston:3 with an error
// of 0.02; default plan dopri5:1e-5).
absl::Status WriteModel(const LinearModel& model, const std::string& repository);
// Both tiny models, each with its default correction as generation 1, active, with its verdict.
absl::Status WriteTinyRepository(const std::string& repository);

}  // namespace fixture
}  // namespace hyperserve
