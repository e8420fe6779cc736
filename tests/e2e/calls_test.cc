// Every call of the daemon, asked through the client library, with the numbers checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "client/client.h"
#include "client/deadline.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "core/model/spec/spec.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::Not;
using testing::SizeIs;
using tiny::Distance;
using tiny::Numbers;

// Float32 solves of numbers near one: rounding of some hundred operations.
constexpr double kFloatError = 2e-5;
constexpr double kDoubleError = 1e-8;  // dopri5:1e-10/double
constexpr char kTight[] = "dopri5:1e-10/double";

class Calls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    repository_ = std::make_unique<TemporaryFolder>();
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_->path()).ok());
    auto daemon = Daemon::Start(repository_->path());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<Client>(daemon_->client_options());
  }
  static void TearDownTestSuite() {
    client_.reset();
    daemon_.reset();
    repository_.reset();
  }
  static Client& client() { return *client_; }
  static Deadline Soon() { return Deadline::In(kSoon); }

  static std::unique_ptr<TemporaryFolder> repository_;
  static std::unique_ptr<Daemon> daemon_;
  static std::unique_ptr<Client> client_;
};

std::unique_ptr<TemporaryFolder> Calls::repository_;
std::unique_ptr<Daemon> Calls::daemon_;
std::unique_ptr<Client> Calls::client_;

TEST_F(Calls, ClassifyAnswersAllThatIsWanted) {
  v1::ClassifyRequest request = tiny::ClassifyRows(5, kTight);
  request.mutable_options()->set_request_id("all-of-it");
  v1::ClassifyWant& want = *request.mutable_want();
  want.set_labels(true);
  want.set_top_k(2);
  want.set_probabilities(true);
  want.set_logits(true);
  want.set_state(true);
  const auto reply = client().Classify(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->info().request_id(), "all-of-it");
  EXPECT_EQ(reply->info().plan(), kTight);
  EXPECT_EQ(reply->info().tier(), "double");
  EXPECT_EQ(reply->info().generation(), 0);
  EXPECT_THAT(reply->info().base_digest(), SizeIs(64));
  EXPECT_GT(reply->info().nfe(0), 0);
  EXPECT_GT(reply->info().macs(0), 0);
  EXPECT_THAT(reply->info().row_status(), testing::ElementsAre(v1::ROW_STATUS_CONVERGED));
  const auto logits = Numbers(reply->logits());
  const auto probabilities = Numbers(reply->probabilities());
  const auto top = Numbers(reply->top_labels());
  ASSERT_THAT(logits, SizeIs(15));
  ASSERT_THAT(reply->labels(), SizeIs(5));
  const std::vector<std::string> names = {"low", "middle", "high"};
  for (size_t row = 0; row < 5; ++row) {
    const double* const mine = &logits[3 * row];
    const auto best = std::max_element(mine, mine + 3) - mine;
    EXPECT_EQ(reply->labels(row), best);
    EXPECT_EQ(reply->label_names(row), names[best]);
    EXPECT_EQ(top[2 * row], static_cast<double>(best));
    const double* const p = &probabilities[3 * row];
    EXPECT_NEAR(std::accumulate(p, p + 3, 0.0), 1.0, 1e-6);
    EXPECT_NEAR(std::log(p[0] / p[1]), mine[0] - mine[1], 1e-5);
  }
}

TEST_F(Calls, ClassifySolvesWhatSolveSolves) {
  v1::ClassifyRequest request = tiny::ClassifyRows(4, kTight);
  request.mutable_want()->set_state(true);
  const auto classified = client().Classify(request, Soon());
  ASSERT_TRUE(classified.ok()) << classified.status();
  v1::SolveRequest solve;
  *solve.mutable_options() = request.options();
  *solve.mutable_inputs() = request.inputs();
  solve.add_save_at(0.0);
  const auto solved = client().Solve(solve, Soon());
  ASSERT_TRUE(solved.ok()) << solved.status();
  const auto start = Numbers(solved->saved()), end = Numbers(solved->state());
  EXPECT_LT(Distance(Numbers(classified->state()), end), kDoubleError);
  const fixture::LinearModel model = fixture::TinyClassifier();
  for (size_t row = 0; row < 4; ++row) {
    const std::vector<double> z(&start[4 * row], &start[4 * row] + 4);
    const std::vector<double> found(&end[4 * row], &end[4 * row] + 4);
    EXPECT_LT(Distance(fixture::ExactSolution(model, Direction::kForward, z, 1.0), found),
              kDoubleError);
  }
}

TEST_F(Calls, SampleIsTheExactFlowOfPhiloxNoise) {
  v1::SampleRequest request = tiny::SampleRows(50, kTight, 1000);
  request.set_log_density(true);
  const auto reply = client().Sample(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_LT(Distance(Numbers(reply->samples()), tiny::ExactSamples(50, 1000)), kDoubleError);
  EXPECT_LT(Distance(Numbers(reply->log_density()), tiny::ExactSampleLogDensities(50, 1000)),
            kDoubleError);
  const auto floats = client().Sample(tiny::SampleRows(50, "rk4:16", 1000), Soon());
  ASSERT_TRUE(floats.ok()) << floats.status();
  EXPECT_LT(Distance(Numbers(floats->samples()), tiny::ExactSamples(50, 1000)), kFloatError);
  EXPECT_THAT(floats->info().nfe(), testing::ElementsAre(64));
}

TEST_F(Calls, HypersolvedSampleUsesTheActiveGeneration) {
  v1::SampleRequest request = tiny::SampleRows(20, "hyper_heun:2");
  request.set_log_density(true);
  const auto reply = client().Sample(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->info().generation(), 1);
  EXPECT_THAT(reply->info().nfe(), testing::ElementsAre(4));
  EXPECT_THAT(reply->info().correction_evaluations(), testing::ElementsAre(2));
  EXPECT_LT(Distance(Numbers(reply->samples()), tiny::ExactSamples(20)), kFloatError)
      << "the default correction is exact at K = 2";
  EXPECT_LT(Distance(Numbers(reply->log_density()), tiny::ExactSampleLogDensities(20)),
            kFloatError);
  const auto classical = client().Sample(tiny::SampleRows(20, "heun:2"), Soon());
  EXPECT_GT(Distance(Numbers(classical->samples()), tiny::ExactSamples(20)), 1e-3);
}

TEST_F(Calls, AutomaticPlansNameWhatRan) {
  const auto chosen = client().Sample(tiny::SampleRows(5, "auto:5e-2,10000ms"), Soon());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->info().plan(), "ralston:3");
  EXPECT_EQ(chosen->info().calibrated_error(), 0.02);
  EXPECT_THAT(chosen->info().plan_reason(), testing::HasSubstr("auto:5e-2"));
  EXPECT_THAT(chosen->info().nfe(), testing::ElementsAre(6));
  const absl::Status refused = client().Sample(tiny::SampleRows(5, "auto:1e-3"), Soon()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("'ralston:3' (error 0.02"));
  const auto model = client().GetModel(tiny::kFlow, Soon());
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->plans_size(), 1);
  EXPECT_GT(model->plans(0).times_size(), 0) << "measured at warm-up";
}

TEST_F(Calls, SamplesDoNotDependOnHowTheyWereAskedFor) {
  for (const std::string plan : {"hyper_heun:2", "dopri5:1e-6"}) {
    const auto whole = client().Sample(tiny::SampleRows(100, plan), Soon());
    ASSERT_TRUE(whole.ok()) << whole.status();
    std::string split;
    for (const auto& [first, rows] : {std::pair{0, 1}, {1, 40}, {41, 59}}) {
      const auto part = client().Sample(tiny::SampleRows(rows, plan, first), Soon());
      ASSERT_TRUE(part.ok()) << part.status();
      split += part->samples().data();
    }
    EXPECT_EQ(split, whole->samples().data()) << plan;
    v1::SampleStreamRequest stream;
    *stream.mutable_sample() = tiny::SampleRows(100, plan);
    stream.set_chunk_rows(17);
    std::string streamed;
    int chunks = 0;
    const auto summary = client().SampleStream(stream, Soon(), [&](const v1::SampleChunk& chunk) {
      streamed += chunk.samples().data();
      EXPECT_EQ(chunk.generation(), whole->info().generation());
      ++chunks;
      return absl::OkStatus();
    });
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(streamed, whole->samples().data()) << plan;
    EXPECT_EQ(chunks, 6);
    EXPECT_EQ(summary->plan(), plan);
  }
}

TEST_F(Calls, LogProbIsExact) {
  const fixture::LinearModel flow = fixture::TinyFlow();
  const auto reply = client().LogProb(tiny::LogProbRows(30, kTight), Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  const HostTensor points = fixture::TinyInputs(flow, 30);
  std::vector<double> expected;
  for (size_t row = 0; row < 30; ++row) {
    const auto z =
        fixture::ExactSolution(flow, Direction::kDataToNoise,
                               {points.as<float>()[2 * row], points.as<float>()[2 * row + 1]}, 1.0);
    expected.push_back(-(z[0] * z[0] + z[1] * z[1]) / 2 - std::log(2 * M_PI) - flow.a[0] -
                       flow.a[3]);
  }
  EXPECT_LT(Distance(Numbers(reply->log_prob()), expected), kDoubleError);
}

TEST_F(Calls, SolveTakesItsOwnSpanAndSaves) {
  const fixture::LinearModel flow = fixture::TinyFlow();
  v1::SolveRequest request = tiny::SolveRows(1, kTight);
  request.mutable_span()->set_begin(0.25);
  request.mutable_span()->set_end(2.25);
  for (const double depth : {0.5, 1.25, 2.25}) request.add_save_at(depth);
  const auto reply = client().Solve(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto points = Numbers(request.state());
  std::vector<double> expected;
  for (const double depth : {0.5, 1.25, 2.25}) {
    const auto z = fixture::ExactSolution(flow, flow.direction, points, depth - 0.25);
    expected.insert(expected.end(), z.begin(), z.end());
  }
  EXPECT_LT(Distance(Numbers(reply->saved()), expected), 1e-6) << "between steps: interpolated";
  EXPECT_LT(Distance(Numbers(reply->state()), {expected[4], expected[5]}), kDoubleError);
}

TEST_F(Calls, CompanyDoesNotChangeAnswers) {
  for (const std::string plan : {"dopri5:1e-6", "hyper_heun:2", "dopri5:1e-6/double"}) {
    const auto alone = client().Sample(tiny::SampleRows(3, plan), Soon());
    ASSERT_TRUE(alone.ok()) << alone.status();
    std::vector<std::thread> threads;
    std::atomic<int64_t> largest_bucket = 0;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint64_t i = 0; i < 10; ++i) {
          // Other requests beside them, each too large for the padding of three rows, and then the
          // same rows again.
          const auto other =
              client().Sample(tiny::SampleRows(33 + 7 * thread, plan, 1000 * i), Soon());
          ASSERT_TRUE(other.ok()) << other.status();
          const auto again = client().Sample(tiny::SampleRows(3, plan), Soon());
          ASSERT_TRUE(again.ok()) << again.status();
          EXPECT_EQ(again->samples().data(), alone->samples().data()) << plan;
          int64_t seen = largest_bucket;
          while (seen < again->info().bucket() &&
                 !largest_bucket.compare_exchange_weak(seen, again->info().bucket())) {
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(largest_bucket, alone->info().bucket()) << "no request ever had company";
  }
}

TEST_F(Calls, RowsThatFailDoNotFailTheCall) {
  v1::ClassifyRequest request = tiny::ClassifyRows(3, "dopri5:1e-10/double");
  request.mutable_options()->set_max_steps(1);
  request.mutable_want()->set_labels(true);
  request.mutable_want()->set_logits(true);
  const auto reply = client().Classify(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->info().row_status(), Each(v1::ROW_STATUS_STEP_LIMIT));
  EXPECT_THAT(reply->labels(), testing::ElementsAre(-1, -1, -1));
  for (const double logit : Numbers(reply->logits())) EXPECT_TRUE(std::isnan(logit));
  v1::SolveRequest solve = tiny::SolveRows(2, "dopri5:1e-10/double");
  solve.mutable_options()->set_max_steps(1);
  for (const double z : Numbers(client().Solve(solve, Soon())->state())) EXPECT_TRUE(std::isnan(z));
  solve.set_partial_states(true);
  for (const double z : Numbers(client().Solve(solve, Soon())->state())) {
    EXPECT_TRUE(std::isfinite(z));
  }
}

TEST_F(Calls, ListsWhatIsServed) {
  const auto list = client().ListModels(Soon());
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->models_size(), 2);
  EXPECT_EQ(list->models(0).name(), tiny::kClassifier);
  EXPECT_EQ(list->models(0).kind(), "classifier");
  EXPECT_EQ(list->models(1).corrections(0).method(), "heun");
  EXPECT_EQ(list->models(1).corrections(0).generation(), 1);
  const auto model = client().GetModel(tiny::kClassifier, Soon());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->labels(), testing::ElementsAre("low", "middle", "high"));
  EXPECT_THAT(model->state_shape(), testing::ElementsAre(4));
  EXPECT_EQ(model->spec_json(), fixture::TinyClassifier().model_json);
  const auto info = client().GetServerInfo(Soon());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->version().empty());
  EXPECT_GE(info->devices_size(), 1);
  std::map<std::string, std::string> limits;
  for (const v1::Limit& limit : info->limits()) limits[limit.name()] = limit.value();
  EXPECT_EQ(limits["queue_rows_max"], "16384");
  for (const char* decided : {"solvers", "pending_macs_max", "batch_macs_max", "device"}) {
    EXPECT_THAT(limits[decided], Not(AnyOf("", "0", "auto"))) << decided;
  }
}

}  // namespace
}  // namespace hyperserve
