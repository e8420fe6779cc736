// What the tests ask of the tiny models, and the answers they must give.
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
// Of points that TinyInputs makes.
v1::LogProbRequest LogProbRows(int64_t rows, const std::string& plan);
// Of the flow, from states.
v1::SolveRequest SolveRows(int64_t rows, const std::string& plan);

// A candidate for the flow's Heun correction, claiming K = 2 alone, where its error is 1 - scale
// times Heun's.
GenerationFiles Candidate(double scale);
// One that takes seconds to examine, and is refused: Heun's method itself, at the most and the
// largest K that a candidate may claim.
GenerationFiles SlowCandidate();
v1::PublishHypersolverRequest PublishRequest(const GenerationFiles& files,
                                             const std::string& model = kFlow,
                                             const std::string& method = "heun");
// A repository of the flow alone with generation 1 = Candidate(scale), active.
void WriteFlowRepository(const std::string& repository, double scale);

// A repository of the flow alone that takes many seconds to load: slow candidates to examine.
void WriteSlowRepository(const std::string& repository);

// What SampleRows(rows, "hyper_heun:2") must answer on the generation of Candidate(scale).
std::vector<double> HypersolvedSamples(int64_t rows, double scale);
// Samples of the exact flow, and their log-densities.
std::vector<double> ExactSamples(int64_t rows, uint64_t first_row = 0);
std::vector<double> ExactSampleLogDensities(int64_t rows, uint64_t first_row = 0);

// A tensor's numbers; the test fails where it is none.
std::vector<double> Numbers(const v1::Tensor& wire);
// Largest |a - b|; the test fails where the lengths differ.
double Distance(const std::vector<double>& a, const std::vector<double>& b);

inline constexpr uint64_t kSeed = 42;

}  // namespace hyperserve::tiny
