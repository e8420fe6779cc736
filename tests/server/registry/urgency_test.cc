// What goes before what on the registry's thread, and how long one candidate may hold it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Registry::Event::Kind;
using Outcome = absl::StatusOr<PublishOutcome>;

class Urgency : public RegistryFixture {
 protected:
  // A registry whose gate lets everything pass. The examination with this number, from 1, calls
  // `meanwhile` first.
  void OpenWhere(int examination, std::function<void()> meanwhile, RegistryOptions options = {}) {
    options.measure = [this, examination, meanwhile = std::move(meanwhile)](
                          const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
      if (++examinations_ == examination) meanwhile();
      return std::vector<GateMeasurement>{{.steps = 1, .candidate_error = 0.1, .base_error = 0.2}};
    };
    Open(std::move(options));
  }
  void SendPublish(double scale) {
    registry_->Publish({.model = "tiny_flow", .method = "heun", .files = Scaled(scale)}, {},
                       Keep("publish"));
  }
  void SendRollback() { registry_->Rollback("tiny_flow", "heun", 0, {}, Keep("rollback")); }

  // Notes the order of the answers.
  std::function<void(Outcome)> Keep(const std::string& what) {
    return [this, what](const Outcome& outcome) {
      const std::lock_guard<std::mutex> lock(mutex_);
      answers_.push_back(outcome.ok() ? absl::StrCat(what, " ", outcome->generation)
                                      : absl::StrCat(what, ": ", outcome.status().message()));
    };
  }
  std::vector<std::string> Answers() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return answers_;
  }

  std::atomic<int> examinations_ = 0;
  std::vector<std::string> answers_;  // guarded by mutex_
};

TEST_F(Urgency, ARollbackGoesBeforeAnExaminationWhichBeginsAnew) {
  OpenWhere(3, [this] { SendRollback(); });
  for (const double scale : {0.2, 0.3}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  SendPublish(0.4);
  SendPublish(0.5);
  ASSERT_TRUE(Publish(Scaled(0.6)).ok());  // waits for the others
  EXPECT_THAT(Answers(), ElementsAre("rollback 1", "publish 4", "publish 5"));
  EXPECT_EQ(examinations_, 6);
  EXPECT_EQ(Events(Kind::kRefused).size(), 0u);
  EXPECT_THAT(ListGenerations(HeunFolder()), ElementsAre(1, 2, 4, 5, 6));
}

TEST_F(Urgency, APublishGoesBeforeTheFolder) {
  poll_seconds_ = 0.01;
  OpenWhere(1, [this] { SendPublish(0.4); });
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.2)).value(), 1);
  while (examinations_ < 2) std::this_thread::yield();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  EXPECT_THAT(Answers(), ElementsAre("publish 2"));
  for (const Registry::Event& event : Events(Kind::kPublished)) {
    EXPECT_EQ(event.source, "rpc") << "generation " << event.generation;
  }
}

TEST_F(Urgency, CandidatesThatWaitLeaveRoomForARollback) {
  OpenWhere(3,
            [this] {
              SendPublish(0.5);
              SendPublish(0.6);  // one too many
              SendRollback();
            },
            {.publish_queue_limit = 1});
  for (const double scale : {0.2, 0.3}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  SendPublish(0.4);
  while (Answers().size() < 4) std::this_thread::yield();
  EXPECT_THAT(Answers(), ElementsAre("publish: 1 others wait already; try again later",
                                     "rollback 1", "publish 4", "publish 5"));
}

TEST_F(Urgency, AnExaminationIsBoundedInMacs) {
  Open({.examination_macs_max = 100});
  const Outcome outcome = Publish(Scaled(0.5));
  EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()),
              HasSubstr("more than examination_macs_max = 1e+02"));
  EXPECT_EQ(Events(Kind::kRefused).size(), 1u);
}

TEST_F(Urgency, AnExaminationIsBoundedInTime) {
  Open({.examination_seconds_max = 1e-9});
  const Outcome outcome = Publish(Scaled(0.5));
  EXPECT_EQ(outcome.status().code(), StatusCode::kFailedPrecondition) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("examination_seconds_max"));
  EXPECT_TRUE(ListGenerations(HeunFolder()).empty());
}

}  // namespace
}  // namespace hyperserve
