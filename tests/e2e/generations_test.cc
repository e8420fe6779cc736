// A generation's life seen from outside: published under load, refused, rolled back, restarted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "client/client.h"
#include "client/deadline.h"
#include "core/io/file.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr char kPlan[] = "hyper_heun:2";
constexpr double kFloatError = 1e-6;  // two steps in float32 against two in double
constexpr double kFirstScale = 0.5;

Deadline Soon() { return Deadline::In(kSoon); }

class Generations : public testing::Test {
 protected:
  void SetUp() override {
    tiny::WriteFlowRepository(repository_.path(), kFirstScale);
    ASSERT_FALSE(HasFatalFailure());
    Restart();
  }
  void Restart() {
    client_.reset();
    daemon_.reset();
    auto daemon = Daemon::Start(repository_.path(), {"--poll_seconds=0.1"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<Client>(daemon_->client_options());
  }
  absl::Status Publish(const GenerationFiles& files) {
    return client_->Publish(tiny::PublishRequest(files), Soon()).status();
  }
  int64_t Active() {
    const auto reply = client_->Sample(tiny::SampleRows(1, kPlan), Soon());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->info().generation() : -1;
  }
  absl::Status Rollback(int64_t generation = 0) {
    v1::RollbackHypersolverRequest request;
    request.set_model(tiny::kFlow);
    request.set_method("heun");
    request.set_generation(generation);
    return client_->Rollback(request, Soon()).status();
  }
  std::string Folder() const {
    return HypersolverFolder(repository_.path() + "/" + tiny::kFlow, {.method = Method::kHeun});
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

// Makes calls without a pause and keeps the answers of each generation and the failures.
class Load {
 public:
  Load(const Daemon& daemon, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, options = daemon.client_options()] {
        Client client(options);
        while (!stop_) Ask(client);
      });
    }
  }
  ~Load() { Stop(); }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // Until `calls` more have been answered.
  void LetThrough(int64_t calls) {
    const int64_t until = answered_ + calls;
    while (answered_ < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  static constexpr int64_t kRows = 5;
  // After Stop().
  struct Origin {
    int64_t generation = 0;
    int64_t bucket = 0;  // on a GPU, where other sizes of a batch are rounded otherwise
    auto operator<=>(const Origin&) const = default;  // NOLINT(modernize-use-nullptr): not ours
  };
  std::map<Origin, std::set<std::string>> answers;  // bits
  std::vector<absl::Status> failures;

 private:
  void Ask(Client& client) {
    const auto reply = client.Sample(tiny::SampleRows(kRows, kPlan), Soon());
    const std::lock_guard lock(mutex_);
    if (reply.ok()) {
      const v1::SolveInfo& info = reply->info();
      answers[{info.generation(), info.device() == "cpu" ? 0 : info.bucket()}].insert(
          reply->samples().data());
    } else {
      failures.push_back(reply.status());
    }
    ++answered_;
  }

  std::mutex mutex_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> answered_ = 0;
  std::vector<std::thread> threads_;
};

std::vector<double> Floats(const std::string& bits) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_F32);
  tensor.add_shape(Load::kRows);
  tensor.add_shape(2);
  tensor.set_data(bits);
  return tiny::Numbers(tensor);
}

TEST_F(Generations, SwapUnderLoadLosesNothingAndMixesNothing) {
  std::map<int64_t, double> scales = {{1, kFirstScale}};
  Load load(*daemon_, 4);
  for (int64_t generation = 2; generation <= 8; ++generation) {
    load.LetThrough(20);
    const double scale = 1 - kFirstScale / static_cast<double>(generation);
    scales[generation] = scale;
    const auto reply = client_->Publish(tiny::PublishRequest(tiny::Candidate(scale)), Soon());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->generation(), generation);
    EXPECT_EQ(reply->previous_generation(), generation - 1);
    ASSERT_EQ(reply->gate_size(), 1);
    EXPECT_LT(reply->gate(0).candidate_error(), reply->gate(0).active_error());
    EXPECT_LT(reply->gate(0).active_error(), reply->gate(0).base_error());
    EXPECT_EQ(Active(), generation) << "served when Publish has answered";
  }
  load.LetThrough(20);
  load.Stop();
  EXPECT_TRUE(load.failures.empty()) << load.failures.size() << ", " << load.failures[0];
  std::set<int64_t> seen;
  for (const auto& [origin, bits] : load.answers) {
    const int64_t generation = origin.generation;
    seen.insert(generation);
    ASSERT_TRUE(scales.contains(generation)) << generation;
    ASSERT_EQ(bits.size(), 1u) << "one answer from generation " << generation;
    EXPECT_LT(tiny::Distance(Floats(*bits.begin()),
                             tiny::HypersolvedSamples(Load::kRows, scales[generation])),
              kFloatError)
        << "generation " << generation;
  }
  EXPECT_EQ(seen.size(), scales.size());
}

TEST_F(Generations, RefusedCandidatesChangeNothingAndSayWhy) {
  ASSERT_TRUE(Publish(tiny::Candidate(0.9)).ok());
  const auto refuse = [&](const GenerationFiles& files, StatusCode code, const std::string& words) {
    const absl::Status status = Publish(files);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_EQ(Active(), 2);
  };
  Load load(*daemon_, 1);
  GenerationFiles files = tiny::Candidate(1.0);
  files["weights.safetensors"].resize(files["weights.safetensors"].size() - 4);
  refuse(files, StatusCode::kFailedPrecondition, "weights.safetensors");
  files["weights.safetensors"] =
      fixture::SafetensorsOf({{"net.0.weight", {2, 4}, std::vector<double>(8, 0.0)}});
  refuse(files, StatusCode::kFailedPrecondition, "net.0.weight");
  std::vector<double> numbers(10, 0.0);
  numbers[3] = std::numeric_limits<double>::quiet_NaN();
  files["weights.safetensors"] = fixture::SafetensorsOf({{"net.0.weight", {2, 5}, numbers}});
  refuse(files, StatusCode::kFailedPrecondition, "finite");
  refuse(fixture::TinyCorrection(fixture::TinyFlow(), {.method = {.method = Method::kHeun},
                                                       .direction = Direction::kNoiseToData,
                                                       .steps = {2},
                                                       .base_digest = std::string(64, 'a')}),
         StatusCode::kFailedPrecondition, "base");
  const std::string loses = "does not beat the classical method";
  refuse(tiny::Candidate(0.0), StatusCode::kFailedPrecondition, loses);
  refuse(tiny::Candidate(-1.0), StatusCode::kFailedPrecondition, loses);
  refuse(tiny::Candidate(0.5), StatusCode::kFailedPrecondition, "generation");
  files = tiny::Candidate(1.0);
  files.erase("probe.safetensors");
  refuse(files, StatusCode::kInvalidArgument, "probe.safetensors");
  load.Stop();
  EXPECT_TRUE(load.failures.empty());
  EXPECT_EQ(load.answers.size(), 1u);
  ASSERT_TRUE(Publish(tiny::Candidate(1.0)).ok());
  EXPECT_GT(Active(), 2) << "a good one still passes";
}

TEST_F(Generations, RestartKeepsTheActiveOneAndUndoesNoRollback) {
  ASSERT_TRUE(Publish(tiny::Candidate(0.9)).ok());
  Restart();
  EXPECT_EQ(Active(), 2);
  ASSERT_TRUE(Rollback().ok());
  EXPECT_EQ(Active(), 1);
  EXPECT_EQ(Rollback(99).code(), StatusCode::kNotFound);
  Restart();
  EXPECT_EQ(Active(), 1);
  const auto model = client_->GetModel(tiny::kFlow, Soon());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->model().corrections(0).generation(), 1);
  ASSERT_TRUE(Publish(tiny::Candidate(0.95)).ok());
  EXPECT_EQ(Active(), 3) << "numbers are never reused";
  ASSERT_TRUE(Rollback(2).ok());
  EXPECT_EQ(Active(), 2);
}

TEST_F(Generations, PinsTheActiveOrThePreviousOne) {
  ASSERT_TRUE(Publish(tiny::Candidate(0.9)).ok());
  for (const auto& [generation, scale] : {std::pair{1, kFirstScale}, {2, 0.9}}) {
    v1::SampleRequest request = tiny::SampleRows(Load::kRows, kPlan);
    request.mutable_options()->set_generation(generation);
    const auto reply = client_->Sample(request, Soon());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->info().generation(), generation);
    EXPECT_LT(tiny::Distance(tiny::Numbers(reply->samples()),
                             tiny::HypersolvedSamples(Load::kRows, scale)),
              kFloatError);
  }
}

TEST_F(Generations, FoldersPassTheSameGate) {
  const auto worse = WriteGeneration(Folder(), tiny::Candidate(-1.0));
  const auto better = WriteGeneration(Folder(), tiny::Candidate(0.9));
  ASSERT_TRUE(worse.ok() && better.ok());
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (Active() != *better && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(Active(), *better);
  const auto verdicts = ReadVerdicts(Folder());
  ASSERT_TRUE(verdicts.ok()) << verdicts.status();
  EXPECT_FALSE(verdicts->at(*worse).passed);
  EXPECT_TRUE(verdicts->at(*better).passed);
}

}  // namespace
}  // namespace hyperserve
