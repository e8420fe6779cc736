#include "tests/e2e/tiny.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "client/frame/rows.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"

namespace hyperserve::tiny {
namespace {

void SetOptions(const char* model, const std::string& plan, v1::SolveOptions& options) {
  options.set_model(model);
  options.mutable_plan()->set_text(plan);
}

std::vector<double> Noise(int64_t rows, uint64_t first_row) {
  std::vector<double> noise(rows * 2);
  PhiloxNormals(kSeed, first_row, rows, 2, noise);
  return noise;
}

// `step` applied to each row's two numbers.
template <class Step>
std::vector<double> EachRow(const std::vector<double>& rows, Step step) {
  std::vector<double> result;
  for (size_t i = 0; i < rows.size(); i += 2) {
    const std::vector<double> row = step(std::vector<double>{rows[i], rows[i + 1]});
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

std::vector<double> Slope(const fixture::LinearModel& flow, const std::vector<double>& z) {
  return {flow.a[0] * z[0] + flow.a[1] * z[1], flow.a[2] * z[0] + flow.a[3] * z[1]};
}

std::vector<double> Along(const std::vector<double>& z, double eps, const std::vector<double>& f) {
  return {z[0] + eps * f[0], z[1] + eps * f[1]};
}

}  // namespace

v1::ClassifyRequest ClassifyRows(int64_t rows, const std::string& plan) {
  v1::ClassifyRequest request;
  SetOptions(kClassifier, plan, *request.mutable_options());
  *request.mutable_inputs() = ToWire(fixture::TinyInputs(fixture::TinyClassifier(), rows));
  return request;
}

v1::SampleRequest SampleRows(int64_t rows, const std::string& plan, uint64_t first_row) {
  v1::SampleRequest request;
  SetOptions(kFlow, plan, *request.mutable_options());
  request.set_rows(rows);
  request.set_seed(kSeed);
  request.set_first_row(first_row);
  return request;
}

v1::LogProbRequest LogProbRows(int64_t rows, const std::string& plan) {
  v1::LogProbRequest request;
  SetOptions(kFlow, plan, *request.mutable_options());
  *request.mutable_inputs() = ToWire(fixture::TinyInputs(fixture::TinyFlow(), rows));
  return request;
}

v1::SolveRequest SolveRows(int64_t rows, const std::string& plan) {
  v1::SolveRequest request;
  SetOptions(kFlow, plan, *request.mutable_options());
  *request.mutable_state() = ToWire(fixture::TinyInputs(fixture::TinyFlow(), rows));
  return request;
}

GenerationFiles Candidate(double scale) {
  return fixture::TinyCorrection(fixture::TinyFlow(), {.method = {.method = Method::kHeun},
                                                       .direction = Direction::kNoiseToData,
                                                       .steps = {2},
                                                       .exact_steps = 2,
                                                       .scale = scale,
                                                       .base_digest = std::nullopt});
}

GenerationFiles SlowCandidate() {
  std::vector<int> steps(16);
  std::iota(steps.begin(), steps.end(), 985);
  return fixture::TinyCorrection(fixture::TinyFlow(), {.method = {.method = Method::kHeun},
                                                       .direction = Direction::kNoiseToData,
                                                       .steps = steps,
                                                       .exact_steps = 1000,
                                                       .scale = 0.0,
                                                       .base_digest = std::nullopt});
}

v1::PublishHypersolverRequest PublishRequest(const GenerationFiles& files, const std::string& model,
                                             const std::string& method) {
  v1::PublishHypersolverRequest request;
  request.set_model(model);
  request.set_method(method);
  for (const auto& [name, content] : files) {
    v1::NamedFile& file = *request.add_files();
    file.set_name(name);
    file.set_content(content);
  }
  return request;
}

void WriteFlowRepository(const std::string& repository, double scale) {
  ASSERT_TRUE(fixture::WriteModel(fixture::TinyFlow(), repository).ok());
  const std::string folder = HypersolverFolder(repository + "/" + kFlow, {.method = Method::kHeun});
  const auto generation = WriteGeneration(folder, Candidate(scale));
  ASSERT_TRUE(generation.ok()) << generation.status();
  ASSERT_TRUE(
      WriteVerdicts(folder, {{*generation, {.passed = true, .reason = "by construction"}}}).ok());
  ASSERT_TRUE(WriteActive(folder, *generation).ok());
}

void WriteSlowRepository(const std::string& repository) {
  constexpr int kCandidates = 10;
  ASSERT_TRUE(fixture::WriteModel(fixture::TinyFlow(), repository).ok());
  const std::string folder = HypersolverFolder(repository + "/" + kFlow, {.method = Method::kHeun});
  for (int i = 0; i < kCandidates; ++i) ASSERT_TRUE(WriteGeneration(folder, SlowCandidate()).ok());
}

std::vector<double> HypersolvedSamples(int64_t rows, double scale) {
  const fixture::LinearModel flow = fixture::TinyFlow();
  constexpr double kEps = 0.5;
  const auto step = [&](const std::vector<double>& z) {
    const std::vector<double> first = Slope(flow, z);
    const std::vector<double> second = Slope(flow, Along(z, kEps, first));
    const std::vector<double> heun = Along(Along(z, kEps / 2, first), kEps / 2, second);
    const auto exact = fixture::ExactSolution(flow, Direction::kNoiseToData, z, kEps);
    return std::vector<double>{heun[0] + scale * (exact[0] - heun[0]),
                               heun[1] + scale * (exact[1] - heun[1])};
  };
  return EachRow(EachRow(Noise(rows, 0), step), step);
}

std::vector<double> ExactSamples(int64_t rows, uint64_t first_row) {
  return EachRow(Noise(rows, first_row), [](const std::vector<double>& z) {
    return fixture::ExactSolution(fixture::TinyFlow(), Direction::kNoiseToData, z, 1.0);
  });
}

std::vector<double> ExactSampleLogDensities(int64_t rows, uint64_t first_row) {
  const fixture::LinearModel flow = fixture::TinyFlow();
  const std::vector<double> noise = Noise(rows, first_row);
  std::vector<double> densities;
  for (int64_t row = 0; row < rows; ++row) {
    const double square = noise[2 * row] * noise[2 * row] + noise[2 * row + 1] * noise[2 * row + 1];
    densities.push_back(-square / 2 - std::log(2 * std::numbers::pi) - flow.a[0] - flow.a[3]);
  }
  return densities;
}

std::vector<double> Numbers(const v1::Tensor& wire) {
  const auto tensor = FromWire(wire);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  std::vector<double> numbers;
  for (int64_t i = 0; tensor.ok() && i < tensor->elements(); ++i) {
    numbers.push_back(ElementAsDouble(tensor->view(), i));
  }
  return numbers;
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double distance = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double one = std::abs(a[i] - b[i]);
    distance = std::isnan(one) ? HUGE_VAL : std::max(distance, one);
  }
  return distance;
}

}  // namespace hyperserve::tiny
