// The promises of a swap to callers that have pinned, and the registry's thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/model/net/model.h"
#include "core/model/net/norms.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/model/spec/spec.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"
#include "server/registry/shelf_snapshot.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;
using Kind = Registry::Event::Kind;

// Everything passes, each candidate better than the last.
absl::StatusOr<std::vector<GateMeasurement>> Passes(const GateInput& input) {
  std::optional<double> active;
  if (input.active != nullptr) active = 0.1;
  return std::vector<GateMeasurement>{
      {.steps = 1, .candidate_error = 0.1, .active_error = active, .base_error = 0.2}};
}

class SwapTest : public RegistryFixture {
 protected:
  // Waits a little for the registry's thread to destroy what is no longer pinned.
  static bool Expires(const std::weak_ptr<const void>& object) {
    for (int i = 0; i < 500 && !object.expired(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return object.expired();
  }
};

TEST_F(SwapTest, PinsOutliveSwapsAndTheRegistry) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.2)).ok());
  std::shared_ptr<const Generation> first = State().active;
  const auto pin = *registry_->Pin("tiny_flow");
  for (const double scale : {0.4, 0.6, 0.8}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  EXPECT_EQ(pin->Find({.method = Method::kHeun})->active->number, 1);
  registry_.reset();
  EXPECT_EQ(first->number, 1);
  EXPECT_EQ(first->correction->spec().method.method, Method::kHeun);
  EXPECT_EQ(pin->model->spec().kind, ModelKind::kFlow);
}

TEST_F(SwapTest, WhatNobodyPinsIsDestroyedByTheRegistrysThread) {
  Open({.measure = Passes});
  ASSERT_TRUE(Publish(Scaled(0.2)).ok());
  std::weak_ptr<const Generation> first = State().active;
  std::shared_ptr<const Hypersolver> pinned = State().active->correction;
  ASSERT_TRUE(Publish(Scaled(0.4)).ok());
  EXPECT_FALSE(first.expired());  // kept for rollback
  ASSERT_TRUE(Publish(Scaled(0.6)).ok());
  EXPECT_TRUE(Expires(first));
  std::weak_ptr<const Hypersolver> correction = pinned;
  EXPECT_GE(pinned.use_count(),
            2);  // the registry keeps it, so that this pin is not its last owner
  pinned.reset();
  EXPECT_TRUE(Expires(correction));
}

TEST_F(SwapTest, PinsAreConsistentDuringAHundredSwaps) {
  Open({.measure = Passes});
  const GenerationFiles files = Scaled(0.5);
  ASSERT_TRUE(Publish(files).ok());
  std::atomic<bool> stop = false;
  std::atomic<int64_t> pins = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      int64_t last = 0;
      while (!stop) {
        const auto pin = registry_->Pin("tiny_flow");
        ASSERT_TRUE(pin.ok());
        const CorrectionState* state = (*pin)->Find({.method = Method::kHeun});
        ASSERT_NE(state, nullptr);
        ASSERT_NE(state->active, nullptr);
        ASSERT_GE(state->active->number, last);
        if (state->previous != nullptr) {
          ASSERT_EQ(state->previous->number, state->active->number - 1);
        }
        ASSERT_EQ(state->active->correction->spec().steps.size(), 3u);
        last = state->active->number;
        ++pins;
      }
    });
  }
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Publish(files).ok());
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(Active(), 101);
  EXPECT_GT(pins, 100);
}

// What grows with every swap is a leak: the verdicts were, by 1.4 KB a swap in the daemon.
TEST_F(SwapTest, VerdictsAreBoundedAndWhatIsForgottenIsNotTriedAgain) {
  Open({.measure = Passes});
  constexpr auto kSwaps = static_cast<int64_t>(kVerdictsKept) + 10;
  for (int64_t i = 0; i < kSwaps; ++i) ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  auto verdicts = ReadVerdicts(HeunFolder());
  ASSERT_TRUE(verdicts.ok()) << verdicts.status();
  EXPECT_EQ(verdicts->size(), kVerdictsKept);
  EXPECT_THAT(Rollback(3).status().message(), HasSubstr("publish its files again"));
  // Generation 11, the oldest with a verdict, keeps it for as long as it is served.
  ASSERT_TRUE(Rollback(kSwaps - static_cast<int64_t>(kVerdictsKept) + 1).ok());
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  ASSERT_TRUE(Rollback().ok());
  poll_seconds_ = 0.02;
  Open({.measure = Passes});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(Active(), 11);
  EXPECT_EQ(Events(Kind::kPublished).back().source, "start");
}

TEST_F(SwapTest, WarmsBeforeItSwapsAndRefusesWhatCannotBeWarmed) {
  std::vector<int64_t> active_when_warmed;
  absl::Status answer;
  Open({.warm =
            [&](const WarmUpSubject& subject, const auto&) {
              if (subject.correction == nullptr) return absl::OkStatus();
              active_when_warmed.push_back(Active());
              return answer;
            },
        .measure = Passes});
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  answer = absl::InternalError("out of device memory");
  const auto outcome = Publish(Scaled(0.6));
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("out of device memory"));
  EXPECT_EQ(Active(), 1);
  EXPECT_THAT(active_when_warmed, ::testing::ElementsAre(0, 1));
  // It was not acknowledged, so a restart does not serve it.
  EXPECT_FALSE(ReadVerdicts(HeunFolder())->at(2).passed);
  Open({.measure = Passes});
  EXPECT_EQ(Active(), 1);
}

TEST_F(SwapTest, WaitingCandidatesAreBounded) {
  std::promise<void> entered, leave;
  std::shared_future<void> may_leave = leave.get_future().share();
  std::once_flag first;
  Open({.publish_queue_limit = 2, .measure = [&](const GateInput& input) {
          std::call_once(first, [&] { entered.set_value(); });
          may_leave.wait();
          return Passes(input);
        }});
  std::mutex mutex;
  std::vector<absl::StatusCode> answers;
  const auto publish = [&] {
    registry_->Publish({.model = "tiny_flow", .method = "heun", .files = Scaled(0.5)}, {},
                       [&](const absl::StatusOr<PublishOutcome>& outcome) {
                         const std::lock_guard<std::mutex> lock(mutex);
                         answers.push_back(outcome.status().code());
                       });
  };
  publish();
  entered.get_future().wait();  // the first is being examined, not waiting
  for (int i = 0; i < 3; ++i) publish();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_THAT(answers, ::testing::ElementsAre(absl::StatusCode::kResourceExhausted));
  }
  leave.set_value();
  registry_.reset();  // answers all waiting candidates
  EXPECT_EQ(answers.size(), 4u);
}

TEST_F(SwapTest, AGateThatFailsIsNotAVerdict) {
  Open({.measure = [](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
    return absl::InternalError("the engine broke");
  }});
  EXPECT_EQ(Publish(Scaled(1.0)).status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(ListGenerations(HeunFolder()).empty());
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(1.0)).value(), 2);
  Open({.measure = [](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
    return absl::InternalError("the engine broke");
  }});
  EXPECT_FALSE(ReadVerdicts(HeunFolder())->contains(2));  // it came by folder: tried again
  EXPECT_EQ(Active(), 0);
}

TEST_F(SwapTest, OpensWithTheModelsThatFit) {
  fixture::LinearModel broken = fixture::TinyClassifier();
  broken.name = "broken";
  broken.weights.resize(broken.weights.size() / 2);
  ASSERT_TRUE(fixture::WriteModel(broken, repository()).ok());
  fixture::LinearModel misnamed = fixture::TinyClassifier();
  misnamed.name = "Bad Name";
  ASSERT_TRUE(fixture::WriteModel(misnamed, repository()).ok());
  Open();
  ASSERT_EQ(registry_->List().size(), 1u);
  const auto model = registry_->List()[0];
  EXPECT_EQ(model->name, "tiny_flow");
  EXPECT_EQ(model->spec_json, flow_.model_json);
  EXPECT_EQ(PrintPlan(*model->calibration.default_plan), "dopri5:1e-5");
  EXPECT_EQ(model->Find({.method = Method::kHeun}), nullptr);
  const auto refused = Events(Kind::kModelRefused);
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[1].model, "broken");
  EXPECT_THAT(refused[1].detail, HasSubstr("weights.safetensors"));
}

TEST_F(SwapTest, DoesNotOpenWhereNothingCanBeServed) {
  const auto open = [&](const std::string& folder) {
    return Registry::Open({.repository = folder, .runtime = runtime_.get()}, nullptr).status();
  };
  EXPECT_FALSE(open(repository() + "/nowhere").ok());
  EXPECT_THAT(std::string(open(repository() + "/tiny_flow").message()),
              HasSubstr("not one model could be loaded"));
  std::ofstream(repository() + "/tiny_flow/model.json") << "{}";
  EXPECT_THAT(std::string(open(repository()).message()), HasSubstr("tiny_flow: "));
}

TEST_F(SwapTest, TheTinyRepositoryIsServedWhole) {
  ASSERT_TRUE(fixture::WriteTinyRepository(repository()).ok());
  Open();
  ASSERT_EQ(registry_->List().size(), 2u);
  for (const auto& model : registry_->List()) {
    ASSERT_EQ(model->corrections.size(), 1u);
    ASSERT_NE(model->corrections[0].active, nullptr) << model->corrections[0].problem;
    EXPECT_EQ(model->corrections[0].active->number, 1);
    EXPECT_EQ(model->problem, "");
  }
  EXPECT_EQ(Publish(Scaled(1.0), 1)->generation, 2);
}

}  // namespace
}  // namespace hyperserve
