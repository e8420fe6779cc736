// Candidates whose caller gave up, or that the daemon's end interrupts, are never served.
#include "server/clock/patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "core/model/net/norms.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "server/clock/clock.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using Kind = Registry::Event::Kind;
using Outcome = absl::StatusOr<PublishOutcome>;

absl::StatusOr<std::vector<GateMeasurement>> Passes() {
  return std::vector<GateMeasurement>{{.steps = 1, .candidate_error = 0.1, .base_error = 0.2}};
}

class PatienceOfCallers : public RegistryFixture {
 protected:
  // A registry whose gate calls `meanwhile` and then lets every candidate pass.
  void OpenWhere(std::function<void()> meanwhile, RegistryOptions options = {}) {
    options.measure = [meanwhile = std::move(meanwhile)](const GateInput&) {
      meanwhile();
      return Passes();
    };
    Open(std::move(options));
  }
  std::function<void(std::function<void(Outcome)>)> Publishing(double scale, Patience patience) {
    return [this, scale, patience](auto done) {
      registry_->Publish({.model = "tiny_flow", .method = "heun", .files = Scaled(scale)}, patience,
                         std::move(done));
    };
  }
  // Expects that only a verdict with `words` is left of generation `number`, also after a restart.
  void ExpectWithdrawn(int64_t number, const std::string& words) {
    EXPECT_NE(Active(), number);
    EXPECT_THAT(ListGenerations(HeunFolder()), ::testing::Not(::testing::Contains(number)));
    const auto verdicts = ReadVerdicts(HeunFolder());
    ASSERT_TRUE(verdicts.ok() && verdicts->contains(number));
    EXPECT_FALSE(verdicts->at(number).passed);
    EXPECT_THAT(verdicts->at(number).reason, HasSubstr(words));
    const int64_t active = Active();
    Open();
    EXPECT_EQ(Active(), active);
  }

  std::atomic<bool> flag_ = false;
  const Patience while_unset_ = {.cancelled = [this] { return flag_.load(); }};
};

TEST_F(PatienceOfCallers, ACandidateThatIsCancelledWhileItIsExaminedIsNotServed) {
  OpenWhere([this] { flag_ = true; });
  const Outcome outcome = Wait(Publishing(0.5, while_unset_));
  EXPECT_EQ(outcome.status().code(), StatusCode::kCancelled) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("nothing was changed"));
  EXPECT_EQ(Events(Kind::kPublished).size(), 0u);
  ExpectWithdrawn(1, "cancelled");
  EXPECT_EQ(Publish(Scaled(0.5))->generation, 2);
}

TEST_F(PatienceOfCallers, ACandidateWhoseDeadlinePassesWhileItIsExaminedIsNotServed) {
  const Clock::TimePoint deadline = Clock::Real().Now() + std::chrono::milliseconds(200);
  OpenWhere([=] {
    while (Clock::Real().Now() < deadline) std::this_thread::yield();
  });
  const Outcome outcome = Wait(Publishing(0.5, {.deadline = deadline}));
  EXPECT_EQ(outcome.status().code(), StatusCode::kDeadlineExceeded) << outcome.status();
  ExpectWithdrawn(1, "deadline");
}

TEST_F(PatienceOfCallers, WhatExpiredWhileItWaitedIsNotEvenWritten) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  const Patience none = {.deadline = Clock::Real().Now()};
  EXPECT_EQ(Wait(Publishing(1.0, none)).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReadVerdicts(HeunFolder())->size(), 1u);
  const auto back =
      Wait([&](auto done) { registry_->Rollback("tiny_flow", "heun", 0, none, std::move(done)); });
  EXPECT_EQ(back.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Active(), 1);
}

// Cancelled at the first, second, ... check: each time the swap happens completely or not at all.
TEST_F(PatienceOfCallers, IsLookedAtBetweenTheStepsOfTheExamination) {
  Open();
  int given_up = 0;
  for (int looks = 0; looks < 10000; ++looks) {
    auto left = std::make_shared<std::atomic<int>>(looks);
    const Outcome outcome =
        Wait(Publishing(0.5, {.cancelled = [left] { return left->fetch_sub(1) <= 0; }}));
    if (outcome.ok()) {
      EXPECT_EQ(Active(), outcome->generation);
      break;
    }
    ++given_up;
    ASSERT_EQ(outcome.status().code(), StatusCode::kCancelled) << outcome.status();
    ASSERT_EQ(Active(), 0);
    ASSERT_TRUE(ListGenerations(HeunFolder()).empty());
  }
  // Dequeue, load, warm-up, swap, and at least one of each of three claims of two solves.
  EXPECT_GE(given_up, 4 + 3 * 2);
  EXPECT_GT(Active(), 0);
}

TEST_F(PatienceOfCallers, ARollbackThatIsCancelledWhileItWarmsChangesNothing) {
  std::atomic<bool> interrupted = false;
  Open({.warm = [&](const WarmUpSubject& subject, const auto& is_interrupted) {
    if (subject.correction != nullptr && Active() == 2) {
      flag_ = true;
      interrupted = is_interrupted();
    }
    return absl::OkStatus();
  }});
  for (const double scale : {0.2, 0.4}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  const auto back = Wait([&](auto done) {
    registry_->Rollback("tiny_flow", "heun", 0, while_unset_, std::move(done));
  });
  EXPECT_EQ(back.status().code(), StatusCode::kCancelled) << back.status();
  EXPECT_TRUE(interrupted);
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(*ReadActive(HeunFolder()), 2);
}

TEST_F(PatienceOfCallers, TheEndAnswersWhatIsExaminedAndWhatWaits) {
  std::promise<void> entered, leave;
  OpenWhere(
      [&] {
        entered.set_value();
        leave.get_future().wait();
      },
      {.ending = [this] { return flag_.load(); }});
  std::mutex mutex;
  std::vector<absl::Status> answers;
  const auto keep = [&](const Outcome& outcome) {
    const std::lock_guard<std::mutex> lock(mutex);
    answers.push_back(outcome.status());
  };
  Publishing(0.5, {})(keep);
  entered.get_future().wait();
  Publishing(0.6, {})(keep);
  flag_ = true;
  leave.set_value();
  EXPECT_EQ(Publish(Scaled(0.7)).status().code(), StatusCode::kUnavailable);  // waits for the two
  ASSERT_EQ(answers.size(), 2u);
  for (const absl::Status& answer : answers) {
    EXPECT_EQ(answer.code(), StatusCode::kUnavailable) << answer;
    EXPECT_THAT(std::string(answer.message()), HasSubstr("shutting down; nothing was changed"));
  }
  ExpectWithdrawn(1, "shutting down");
}

TEST_F(PatienceOfCallers, WhatCameByFolderIsExaminedAtTheNextStart) {
  poll_seconds_ = 0.01;
  std::promise<void> examined;
  OpenWhere(
      [&] {
        flag_ = true;
        examined.set_value();
      },
      {.ending = [this] { return flag_.load(); }});
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.5)).value(), 1);
  examined.get_future().wait();
  registry_.reset();
  EXPECT_TRUE(ReadVerdicts(HeunFolder())->empty());
  EXPECT_EQ(*ReadActive(HeunFolder()), std::nullopt);
  Open();
  EXPECT_EQ(Active(), 1);
}

TEST_F(PatienceOfCallers, TheEndInterruptsLoading) {
  ASSERT_TRUE(fixture::WriteTinyRepository(repository()).ok());
  int loaded = 0;
  const auto opened = Registry::Open({.repository = repository(),
                                      .runtime = runtime_.get(),
                                      .ending = [&] { return flag_.load(); }},
                                     [&](const Registry::Event& event) {
                                       loaded += event.kind == Kind::kModelLoaded;
                                       flag_ = true;
                                     });
  EXPECT_EQ(opened.status().code(), StatusCode::kUnavailable) << opened.status();
  EXPECT_EQ(loaded, 1);
}

}  // namespace
}  // namespace hyperserve
