// The calls against closed forms: real registry, batcher and readable engine, tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "server/rpc/services.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/server/rpc/service_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HyperserveServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetUpNumerics();
    server_ = new TestServer(BatcherOptionsWith(), MakeDeviceRuntime("cpu").value());
    server_->Load();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  v1::Hyperserve::Stub& calls() { return *server_->calls; }

  template <class T>
  static std::vector<T> Numbers(const v1::Tensor& wire) {
    std::vector<T> numbers(wire.data().size() / sizeof(T));
    std::memcpy(numbers.data(), wire.data().data(), wire.data().size());
    return numbers;
  }

  static void Set(const HostTensor& tensor, v1::Dtype dtype, v1::Tensor* wire) {
    wire->set_dtype(dtype);
    wire->mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    wire->set_data(tensor.bytes.data(), tensor.bytes.size());
  }

  static TestServer* server_;
  grpc::ClientContext context_;
};

TestServer* HyperserveServiceTest::server_ = nullptr;

TEST_F(HyperserveServiceTest, ClassifySaysWhatWasDone) {
  const auto tiny = fixture::TinyClassifier();
  v1::ClassifyRequest request;
  request.mutable_options()->set_model("tiny_classifier");
  request.mutable_options()->set_request_id("me-1");
  request.mutable_options()->mutable_plan()->set_text("hyper_euler:2");
  Set(fixture::TinyInputs(tiny, 5), v1::DTYPE_U8, request.mutable_inputs());
  request.mutable_want()->set_labels(true);
  request.mutable_want()->set_probabilities(true);
  v1::ClassifyReply reply;
  const grpc::Status status = calls().Classify(&context_, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(reply.labels_size(), 5);
  const auto probabilities = Numbers<float>(reply.probabilities());
  for (ptrdiff_t row = 0; row < 5; ++row) {
    const auto begin = probabilities.begin() + 3 * row;
    EXPECT_EQ(std::max_element(begin, begin + 3) - begin, reply.labels(row));
    EXPECT_NEAR(begin[0] + begin[1] + begin[2], 1, 1e-6);
    EXPECT_THAT(reply.label_names(row), testing::AnyOf("low", "middle", "high"));
  }
  EXPECT_EQ(reply.info().request_id(), "me-1");
  EXPECT_EQ(reply.info().plan(), "hyper_euler:2");
  EXPECT_EQ(reply.info().generation(), 1);
  EXPECT_THAT(reply.info().nfe(), ElementsAre(2));
  EXPECT_THAT(reply.info().correction_evaluations(), ElementsAre(2));
  EXPECT_THAT(reply.info().row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED));
  EXPECT_EQ(reply.info().engine(), "readable");
  EXPECT_FALSE(reply.has_logits() || reply.has_state() || reply.has_top_labels());
  EXPECT_EQ(reply.info().base_digest().size(), 64u);
  EXPECT_EQ(Trailer(context_, "hyperserve-request-id"), "me-1");
}

TEST_F(HyperserveServiceTest, ClassifyGivesWhatIsWanted) {
  const auto tiny = fixture::TinyClassifier();
  v1::ClassifyRequest request;
  request.mutable_options()->set_model("tiny_classifier");
  request.mutable_options()->mutable_plan()->set_text("euler:4");
  Set(fixture::TinyInputs(tiny, 2), v1::DTYPE_U8, request.mutable_inputs());
  request.mutable_want()->set_top_k(2);
  request.mutable_want()->set_logits(true);
  request.mutable_want()->set_state(true);
  v1::ClassifyReply reply;
  const grpc::Status status = calls().Classify(&context_, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(reply.top_labels().shape(), ElementsAre(2, 2));
  EXPECT_EQ(reply.top_labels().dtype(), v1::DTYPE_I64);
  EXPECT_THAT(reply.top_probabilities().shape(), ElementsAre(2, 2));
  EXPECT_THAT(reply.logits().shape(), ElementsAre(2, 3));
  EXPECT_THAT(reply.state().shape(), ElementsAre(2, 4));
  EXPECT_EQ(reply.state().dtype(), v1::DTYPE_F32);
  EXPECT_FALSE(reply.has_probabilities());
  EXPECT_EQ(reply.labels_size(), 0);
  const auto logits = Numbers<float>(reply.logits());
  const auto best = std::max_element(logits.begin(), logits.begin() + 3) - logits.begin();
  EXPECT_EQ(Numbers<int64_t>(reply.top_labels())[0], best);
}

TEST_F(HyperserveServiceTest, SolveStartsFromInputsAsWell) {
  const auto tiny = fixture::TinyClassifier();
  v1::SolveRequest request;
  request.mutable_options()->set_model("tiny_classifier");
  request.mutable_options()->mutable_plan()->set_text("dopri5:1e-7");
  request.mutable_options()->set_max_steps(1);
  Set(fixture::TinyInputs(tiny, 2), v1::DTYPE_U8, request.mutable_inputs());
  v1::SolveReply reply;
  grpc::Status status = calls().Solve(&context_, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(reply.state().shape(), ElementsAre(2, 4));
  EXPECT_TRUE(std::isnan(Numbers<float>(reply.state())[0]));
  EXPECT_FALSE(reply.has_saved());
  request.set_partial_states(true);
  grpc::ClientContext second;
  status = calls().Solve(&second, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(std::isfinite(Numbers<float>(reply.state())[0]));
}

TEST_F(HyperserveServiceTest, SamplesAreTheFlowOfTheNoise) {
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("dopri5:1e-10/double");
  request.set_rows(3);
  request.set_seed(42);
  request.set_first_row(7);
  request.set_log_density(true);
  v1::SampleReply reply;
  const grpc::Status status = calls().Sample(&context_, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto samples = Numbers<double>(reply.samples());
  const auto densities = Numbers<double>(reply.log_density());
  ASSERT_EQ(samples.size(), 6u);
  ASSERT_EQ(densities.size(), 3u);
  const auto tiny = fixture::TinyFlow();
  for (uint64_t row = 0; row < 3; ++row) {
    std::vector<double> noise(2);
    PhiloxNormals(42, 7 + row, 1, 2, noise);
    const auto exact = fixture::ExactSolution(tiny, Direction::kNoiseToData, noise, 1.0);
    EXPECT_NEAR(samples[2 * row], exact[0], 1e-6);
    EXPECT_NEAR(samples[2 * row + 1], exact[1], 1e-6);
    const double log_normal =
        -0.5 * (noise[0] * noise[0] + noise[1] * noise[1]) - std::log(2 * M_PI);
    EXPECT_NEAR(densities[row], log_normal - (tiny.a[0] + tiny.a[3]), 1e-6);
  }
}

TEST_F(HyperserveServiceTest, LogProbOfASampleIsItsLogDensity) {
  v1::SampleRequest sample;
  sample.mutable_options()->set_model("tiny_flow");
  sample.mutable_options()->mutable_plan()->set_text("dopri5:1e-10/double");
  sample.set_rows(4);
  sample.set_log_density(true);
  v1::SampleReply samples;
  ASSERT_TRUE(calls().Sample(&context_, sample, &samples).ok());
  v1::LogProbRequest request;
  *request.mutable_options() = sample.options();
  *request.mutable_inputs() = samples.samples();
  v1::LogProbReply reply;
  grpc::ClientContext second;
  const grpc::Status status = calls().LogProb(&second, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto there = Numbers<double>(samples.log_density());
  const auto back = Numbers<double>(reply.log_prob());
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(back[i], there[i], 1e-7);
}

TEST_F(HyperserveServiceTest, SolveFollowsTheField) {
  const auto tiny = fixture::TinyFlow();
  v1::SolveRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("dopri5:1e-10/double");
  const std::vector<double> start = {1.0, -0.5};
  request.mutable_state()->set_dtype(v1::DTYPE_F64);
  request.mutable_state()->add_shape(1);
  request.mutable_state()->add_shape(2);
  request.mutable_state()->set_data(start.data(), 16);
  request.mutable_span()->set_begin(0);
  request.mutable_span()->set_end(0.5);
  request.add_save_at(0.25);
  v1::SolveReply reply;
  const grpc::Status status = calls().Solve(&context_, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto state = Numbers<double>(reply.state()), saved = Numbers<double>(reply.saved());
  const auto exact = fixture::ExactSolution(tiny, Direction::kForward, start, 0.5);
  const auto half_way = fixture::ExactSolution(tiny, Direction::kForward, start, 0.25);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(state[i], exact[i], 1e-8);
    EXPECT_NEAR(saved[i], half_way[i], 1e-6);
  }
}

// With f = A z four steps of euler are the matrix M = (I + A / 4)^4.
TEST_F(HyperserveServiceTest, DerivativesOfALinearFieldAreItsMatrix) {
  const auto tiny = fixture::TinyFlow();
  const auto steps = [&](std::array<double, 2> z, double eps) {
    for (int k = 0; k < 4; ++k) {
      z = {z[0] + eps * (tiny.a[0] * z[0] + tiny.a[1] * z[1]),
           z[1] + eps * (tiny.a[2] * z[0] + tiny.a[3] * z[1])};
    }
    return z;
  };
  const auto row = [](const std::array<double, 2>& z, v1::Tensor* wire) {
    wire->set_dtype(v1::DTYPE_F64);
    wire->add_shape(1);
    wire->add_shape(2);
    wire->set_data(z.data(), 16);
  };
  const std::array<double, 2> z = {1.0, -0.5}, v = {0.25, 2.0};
  v1::SolveVjpRequest pull;
  pull.mutable_solve()->mutable_options()->set_model("tiny_flow");
  pull.mutable_solve()->mutable_options()->mutable_plan()->set_text("euler:4/double");
  row(z, pull.mutable_solve()->mutable_state());
  v1::SolveJvpRequest push;
  *push.mutable_solve() = pull.solve();
  row(v, pull.mutable_cotangent());
  row(v, push.mutable_start_tangent());
  v1::SolveVjpReply pulled;
  v1::SolveJvpReply pushed;
  grpc::ClientContext second, third;
  const grpc::Status status = calls().SolveVjp(&context_, pull, &pulled);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(calls().SolveJvp(&second, push, &pushed).ok());
  const auto first = steps({1, 0}, 0.25), other = steps({0, 1}, 0.25), end = steps(z, 0.25);
  const auto gradient = Numbers<double>(pulled.start_gradient());
  EXPECT_NEAR(gradient[0], first[0] * v[0] + first[1] * v[1], 1e-14);
  EXPECT_NEAR(gradient[1], other[0] * v[0] + other[1] * v[1], 1e-14);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(Numbers<double>(pushed.state_tangent())[i], steps(v, 0.25)[i], 1e-14);
    EXPECT_NEAR(Numbers<double>(pulled.state())[i], end[i], 1e-14);
    EXPECT_NEAR(Numbers<double>(pushed.state())[i], end[i], 1e-14);
  }
  EXPECT_THAT(pulled.info().nfe(), ElementsAre(4));
  EXPECT_FALSE(pulled.has_condition_gradient());
  v1::LogProbGradientRequest request;
  *request.mutable_options() = pull.solve().options();
  row(z, request.mutable_inputs());
  v1::LogProbGradientReply reply;
  ASSERT_TRUE(calls().LogProbGradient(&third, request, &reply).ok());
  const auto noise = steps(z, -0.25), of_first = steps({1, 0}, -0.25);
  EXPECT_NEAR(Numbers<double>(reply.gradient())[0],
              -(of_first[0] * noise[0] + of_first[1] * noise[1]), 1e-14);
  EXPECT_NEAR(Numbers<double>(reply.log_prob())[0],
              -0.5 * (noise[0] * noise[0] + noise[1] * noise[1]) - std::log(2 * M_PI) -
                  (tiny.a[0] + tiny.a[3]),
              1e-14);
}

TEST_F(HyperserveServiceTest, RowsThatReachTheirStepLimitDoNotFailTheCall) {
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("dopri5:1e-9/double");
  request.mutable_options()->set_max_steps(1);
  request.set_rows(2);
  v1::SampleReply reply;
  ASSERT_TRUE(calls().Sample(&context_, request, &reply).ok());
  EXPECT_THAT(reply.info().row_status(), ElementsAre(v1::ROW_STATUS_STEP_LIMIT));
  for (const double x : Numbers<double>(reply.samples())) EXPECT_TRUE(std::isnan(x));
}

TEST_F(HyperserveServiceTest, AStreamIsTheSameSamplesInChunks) {
  v1::SampleRequest whole;
  whole.mutable_options()->set_model("tiny_flow");
  whole.mutable_options()->mutable_plan()->set_text("hyper_heun:2");
  whole.set_rows(25);
  whole.set_seed(3);
  v1::SampleReply unary;
  ASSERT_TRUE(calls().Sample(&context_, whole, &unary).ok());

  v1::SampleStreamRequest request;
  *request.mutable_sample() = whole;
  request.set_chunk_rows(10);
  grpc::ClientContext context;
  const auto reader = calls().SampleStream(&context, request);
  std::string bytes;
  std::vector<uint64_t> first_rows;
  v1::SampleChunk chunk, last;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.generation(), 1);
    EXPECT_FALSE(last.has_summary());
    bytes += chunk.samples().data();
    first_rows.push_back(chunk.first_row());
    last = chunk;
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_THAT(first_rows, ElementsAre(0, 10, 20));
  EXPECT_EQ(bytes, unary.samples().data());
  ASSERT_TRUE(last.has_summary());
  EXPECT_THAT(last.summary().nfe(), ElementsAre(4));
  EXPECT_THAT(last.summary().row_status(), ElementsAre(v1::ROW_STATUS_CONVERGED));
  EXPECT_EQ(last.summary().plan(), "hyper_heun:2");

  request.mutable_sample()->set_first_row(20);  // resume
  request.mutable_sample()->set_rows(5);
  grpc::ClientContext again;
  const auto rest = calls().SampleStream(&again, request);
  ASSERT_TRUE(rest->Read(&chunk));
  EXPECT_EQ(chunk.samples().data(), last.samples().data());
  EXPECT_FALSE(rest->Read(&last));
  EXPECT_TRUE(rest->Finish().ok());
}

TEST_F(HyperserveServiceTest, ModelsAndServerInfo) {
  v1::ListModelsReply list;
  ASSERT_TRUE(calls().ListModels(&context_, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 2);
  EXPECT_EQ(list.models(0).name(), "tiny_classifier");
  EXPECT_THAT(list.models(0).input_shape(), ElementsAre(1, 4, 4));
  EXPECT_EQ(list.models(0).default_plan(), "dopri5:1e-5");

  v1::GetModelRequest request;
  request.set_model("tiny_flow");
  v1::GetModelReply model;
  grpc::ClientContext second;
  ASSERT_TRUE(calls().GetModel(&second, request, &model).ok());
  EXPECT_EQ(model.model().kind(), "flow");
  ASSERT_EQ(model.model().corrections_size(), 1);
  EXPECT_EQ(model.model().corrections(0).method(), "heun");
  EXPECT_EQ(model.model().corrections(0).generation(), 1);
  EXPECT_THAT(model.model().corrections(0).steps(), ElementsAre(1, 2, 4));
  EXPECT_THAT(model.state_shape(), ElementsAre(2));
  EXPECT_GT(model.field_macs(), 0);
  EXPECT_THAT(model.spec_json(), HasSubstr("noise_to_data"));

  v1::GetServerInfoReply info;
  grpc::ClientContext third;
  ASSERT_TRUE(calls().GetServerInfo(&third, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.limits(0).name(), "steps_max");
  EXPECT_EQ(info.devices(0).memory_bytes(), 1024);
  EXPECT_GT(info.uptime_seconds(), 0);
}

TEST_F(HyperserveServiceTest, UnknownModelNamesThoseThatAreThere) {
  v1::GetModelRequest request;
  request.set_model("nobody");
  v1::GetModelReply reply;
  const grpc::Status status = calls().GetModel(&context_, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("tiny_flow"));
}

TEST_F(HyperserveServiceTest, RequestIds) {
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->set_request_id("line\nbreak");
  request.set_rows(1);
  v1::SampleReply reply;
  const grpc::Status status = calls().Sample(&context_, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("request_id"));
  request.mutable_options()->clear_request_id();
  grpc::ClientContext second;
  ASSERT_TRUE(calls().Sample(&second, request, &reply).ok());
  EXPECT_EQ(reply.info().request_id().size(), 16u);
  EXPECT_EQ(Trailer(second, "hyperserve-request-id"), reply.info().request_id());
}

TEST_F(HyperserveServiceTest, CountsWhatItDid) {
  v1::SampleRequest request;
  request.mutable_options()->set_model("tiny_flow");
  request.mutable_options()->mutable_plan()->set_text("euler:4");
  request.set_rows(3);
  v1::SampleReply reply;
  ASSERT_TRUE(calls().Sample(&context_, request, &reply).ok());
  const std::string text = server_->metrics.Text();
  EXPECT_THAT(text, HasSubstr("hyperserve_field_evaluations_total{model=\"tiny_flow\",plan="));
  EXPECT_THAT(text, HasSubstr("call=\"Sample\",code=\"OK\",model=\"tiny_flow\""));
  EXPECT_THAT(text, HasSubstr("status=\"converged\""));
}

}  // namespace
}  // namespace hyperserve
