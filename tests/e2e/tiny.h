// Requests to the tiny models, and the answers that they must get.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/wire_tensor.h"
#include "core/model/repository/generation_files.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve::tiny {

inline constexpr char kFlow[] = "tiny_flow";
inline constexpr char kClassifier[] = "tiny_classifier";

v1::ClassifyRequest ClassifyRows(int64_t rows, const std::string& plan);
v1::SampleRequest SampleRows(int64_t rows, const std::string& plan, uint64_t first_row = 0);
// For the points of TinyInputs.
v1::LogProbRequest LogProbRows(int64_t rows, const std::string& plan);
// For the flow, from states.
v1::SolveRequest SolveRows(int64_t rows, const std::string& plan);

// A candidate for the flow's Heun correction. It claims K = 2 only, where its error is 1 - scale
// times that of Heun's method.
GenerationFiles Candidate(double scale);
// A candidate that takes seconds to examine and is refused. It equals Heun's method, and claims as
// many and as large K as a candidate may.
GenerationFiles SlowCandidate();
v1::PublishHypersolverRequest PublishRequest(const GenerationFiles& files,
                                             const std::string& model = kFlow,
                                             const std::string& method = "heun");
// A repository with the flow only. Generation 1 is Candidate(scale) and is active.
void WriteFlowRepository(const std::string& repository, double scale);

// A repository with the flow only that takes many seconds to load: it holds slow candidates.
void WriteSlowRepository(const std::string& repository);

// The samples that SampleRows(rows, "hyper_heun:2") must get from Candidate(scale).
std::vector<double> HypersolvedSamples(int64_t rows, double scale);
// Samples of the exact flow, and their log-densities.
std::vector<double> ExactSamples(int64_t rows, uint64_t first_row = 0);
std::vector<double> ExactSampleLogDensities(int64_t rows, uint64_t first_row = 0);

// The numbers of a tensor; the test fails if it is malformed.
std::vector<double> Numbers(const v1::Tensor& wire);
// The largest |a - b|; the test fails if the lengths differ.
double Distance(const std::vector<double>& a, const std::vector<double>& b);

inline constexpr uint64_t kSeed = 42;

}  // namespace hyperserve::tiny
