// The folder of a method when a disk, another daemon or a hand gets in the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "core/io/file_lock.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Registry::Event::Kind;

// The permissions of files hold for this thread and for those that it starts, also where it is
// root's.
class WithoutPrivilege {
 public:
  WithoutPrivilege() {
    syscall(SYS_capget, &header_, before_.data());
    auto without = before_;
    without[0].effective &= ~(1u << CAP_DAC_OVERRIDE);
    syscall(SYS_capset, &header_, without.data());
  }
  ~WithoutPrivilege() { syscall(SYS_capset, &header_, before_.data()); }

 private:
  __user_cap_header_struct header_ = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> before_ = {};
};

class Folder : public RegistryFixture {
 protected:
  // A second daemon on the same folder.
  std::unique_ptr<Registry> OpenAnother(RegistryOptions options = {}) {
    options.repository = repository();
    options.poll_seconds = 0.01;
    options.gate_margin = 0.02;
    options.runtime = runtime_.get();
    options.publish_queue_limit = 8;
    options.examination_macs_max = 1e18;
    options.examination_seconds_max = 1e6;
    return *Registry::Open(std::move(options), nullptr);
  }
  static int64_t ActiveOf(const Registry& registry) {
    const CorrectionState* state = (*registry.Pin("tiny_flow"))->Find({.method = Method::kHeun});
    return state == nullptr || state->active == nullptr ? 0 : state->active->number;
  }
  static void WaitUntil(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(condition());
  }
  void Damage(int64_t generation) {
    std::ofstream(HeunFolder() + "/" + std::to_string(generation) + "/weights.safetensors",
                  std::ios::app)
        << "x";
  }
};

TEST_F(Folder, WhereActiveIsDamagedTheNewestOtherThatPassedIsServedAndItIsSaid) {
  Open();
  for (const double scale : {0.2, 0.4, 0.6}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  Damage(3);
  Open();
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(Previous(), 1);
  EXPECT_THAT(State().problem, HasSubstr("weights.safetensors"));
  EXPECT_THAT(State().problem, HasSubstr("generation 2 is served instead"));
  EXPECT_THAT(Events(Kind::kRefused).back().detail, HasSubstr("generation 2 is served instead"));
  EXPECT_EQ(Events(Kind::kPublished).back().generation, 2);
  EXPECT_EQ(*ReadActive(HeunFolder()), 3);  // it may be mended
  EXPECT_EQ(Publish(Scaled(0.8))->generation, 4);
  EXPECT_EQ(State().problem, "");
}

TEST_F(Folder, WhereActiveCannotBeReadTheNewestThatPassedIsServed) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.9)).value(), 2);
  std::ofstream(HeunFolder() + "/ACTIVE") << "one";
  Open();
  EXPECT_EQ(Active(), 1);
  EXPECT_THAT(State().problem, HasSubstr("'one' is not a generation"));
  EXPECT_FALSE(ReadVerdicts(HeunFolder())->contains(2));  // nothing is tried meanwhile
}

TEST_F(Folder, AFolderThatCannotBeWrittenIsNoFaultOfTheCandidate) {
  const WithoutPrivilege without;
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  fs::permissions(HeunFolder(), fs::perms::owner_write, fs::perm_options::remove);
  const auto outcome = Publish(Scaled(0.6));
  fs::permissions(HeunFolder(), fs::perms::owner_write, fs::perm_options::add);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("Permission denied"));
  EXPECT_EQ(Active(), 1);
  const auto again = Publish(Scaled(0.6));
  ASSERT_TRUE(again.ok()) << again.status() << ": it was blamed";
  EXPECT_EQ(again->generation, 2);
}

TEST_F(Folder, ARestartDoesNotServeWhatWasNotAcknowledged) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.2)).ok());
  // The disk fails when the verdict is to be written: a folder stands in its place.
  bool failing = true;
  Open({.measure = [&](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
    if (failing) {
      fs::rename(HeunFolder() + "/VERDICTS.json", HeunFolder() + "/kept");
      fs::create_directories(HeunFolder() + "/VERDICTS.json/full");
    }
    return std::vector<GateMeasurement>{{.steps = 1, .candidate_error = 0.1, .base_error = 0.2}};
  }});
  EXPECT_FALSE(Publish(Scaled(0.6)).ok());
  EXPECT_EQ(Active(), 1);
  fs::remove_all(HeunFolder() + "/VERDICTS.json");
  fs::rename(HeunFolder() + "/kept", HeunFolder() + "/VERDICTS.json");
  EXPECT_EQ(Rollback(2).status().code(), absl::StatusCode::kFailedPrecondition);
  Open();
  EXPECT_EQ(Active(), 1);
  EXPECT_THAT(ListGenerations(HeunFolder()), ElementsAre(1));
  EXPECT_EQ(Publish(Scaled(0.6))->generation, 3);
}

TEST_F(Folder, ACandidateOfACallIsMarkedWhileItIsExamined) {
  std::string reason;
  Open({.measure = [&](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
    const auto verdicts = ReadVerdicts(HeunFolder());
    EXPECT_FALSE(verdicts->at(1).passed);
    reason = verdicts->at(1).reason;
    // What a daemon that is killed now leaves behind.
    fs::copy(repository(), repository() + "-killed", fs::copy_options::recursive);
    return std::vector<GateMeasurement>{{.steps = 1, .candidate_error = 0.1, .base_error = 0.2}};
  }});
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  EXPECT_THAT(reason, HasSubstr("publish it again"));
  EXPECT_TRUE(ReadVerdicts(HeunFolder())->at(1).passed);
  registry_.reset();
  fs::remove_all(repository());
  fs::rename(repository() + "-killed", repository());
  Open();
  EXPECT_EQ(Active(), 0);
  EXPECT_EQ(Publish(Scaled(0.5))->generation, 2);
}

TEST_F(Folder, ANumberFarAboveTheOthersDoesNotEndPublishing) {
  fs::create_directories(HeunFolder() + "/999999999");
  Open();
  EXPECT_THAT(State().problem, HasSubstr("999999999"));
  EXPECT_EQ(Publish(Scaled(0.5))->generation, 1);
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.6)).value(), 2);
  fs::remove_all(HeunFolder() + "/999999999");
  fs::rename(HeunFolder() + "/2", HeunFolder() + "/999999999");  // whole, and still too far
  Open();
  EXPECT_EQ(Active(), 1);
  EXPECT_EQ(Publish(Scaled(0.7))->generation, 2);
}

TEST_F(Folder, RefusedCandidatesOfAnAlphaLeaveNothing) {
  Open();
  fixture::CorrectionOptions options = fixture::DefaultCorrection(flow_);
  options.scale = -1;
  for (const double alpha : {0.31, 0.32}) {
    options.method = {.method = Method::kAlpha, .alpha = alpha};
    const std::string name = PrintMethod(options.method);
    const auto outcome = Publish(fixture::TinyCorrection(flow_, options), std::nullopt, name);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition) << outcome.status();
    EXPECT_FALSE(fs::exists(HypersolverFolder(repository() + "/tiny_flow", options.method)));
  }
  EXPECT_THAT((*registry_->Pin("tiny_flow"))->corrections, IsEmpty());
  options.scale = 1;
  const std::string name = PrintMethod(options.method);
  ASSERT_TRUE(Publish(fixture::TinyCorrection(flow_, options), std::nullopt, name).ok());
  options.scale = -1;
  EXPECT_FALSE(Publish(fixture::TinyCorrection(flow_, options), std::nullopt, name).ok());
  EXPECT_EQ((*registry_->Pin("tiny_flow"))->corrections.size(), 1u);
}

TEST_F(Folder, TwoDaemonsAgreeAlsoAfterARollback) {
  poll_seconds_ = 0.01;
  Open();
  ASSERT_TRUE(Publish(Scaled(0.2)).ok());
  const std::unique_ptr<Registry> other = OpenAnother();
  ASSERT_TRUE(Publish(Scaled(0.4)).ok());
  WaitUntil([&] { return ActiveOf(*other) == 2; });
  ASSERT_TRUE(Rollback().ok());
  WaitUntil([&] { return ActiveOf(*other) == 1; });
  // The other way round; the verdicts of both are kept.
  const auto published = Wait([&](auto done) {
    other->Publish({.model = "tiny_flow", .method = "heun", .files = Scaled(0.6)}, {}, done);
  });
  ASSERT_TRUE(published.ok()) << published.status();
  WaitUntil([&] { return Active() == published->generation; });
  EXPECT_EQ(ReadVerdicts(HeunFolder())->size(), 3u);
  const auto back =
      Wait([&](auto done) { other->Rollback("tiny_flow", "heun", 2, {}, std::move(done)); });
  ASSERT_TRUE(back.ok()) << back.status();
  WaitUntil([&] { return Active() == 2; });
  EXPECT_EQ(Events(Kind::kRolledBack).back().source, "folder");
  EXPECT_EQ(Events(Kind::kRefused).size(), 0u);
}

TEST_F(Folder, NoDaemonJudgesWhatAnotherExamines) {
  std::atomic<int> judged = 0;
  const std::unique_ptr<Registry> other = OpenAnother(
      {.measure = [&](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
        ++judged;
        return std::vector<GateMeasurement>{};
      }});
  Open({.measure = [](const GateInput&) -> absl::StatusOr<std::vector<GateMeasurement>> {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return std::vector<GateMeasurement>{{.steps = 1, .candidate_error = 0.1, .base_error = 0.2}};
  }});
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  WaitUntil([&] { return ActiveOf(*other) == 1; });
  EXPECT_EQ(judged, 0);
}

TEST_F(Folder, AFolderThatIsBeingCopiedIsNotJudgedYet) {
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.5)).value(), 1);
  const std::string manifest = HeunFolder() + "/1/MANIFEST.json";
  fs::rename(manifest, HeunFolder() + "/manifest");
  poll_seconds_ = 0.01;
  Open();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(*ReadVerdicts(HeunFolder()), IsEmpty());
  fs::rename(HeunFolder() + "/manifest", manifest);
  WaitUntil([&] { return Active() == 1; });
}

TEST_F(Folder, WhatKilledWritersLeftIsRemovedAtStartAndWhatOthersWriteIsNot) {
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::seconds(10);
  for (const char* name : {"/.tmp-dead", "/.tmp-alive"}) {
    fs::create_directories(HeunFolder() + name);
    fs::last_write_time(HeunFolder() + name, long_ago);
  }
  const auto lock = FileLock::Take(HeunFolder() + "/.tmp-alive", std::chrono::milliseconds(0));
  ASSERT_TRUE(lock.ok()) << lock.status();
  const std::string calibration = repository() + "/tiny_flow/calibration.json.tmp-1234";
  std::ofstream(calibration) << "{";
  fs::last_write_time(calibration, long_ago);
  Open();
  EXPECT_FALSE(fs::exists(HeunFolder() + "/.tmp-dead"));
  EXPECT_TRUE(fs::exists(HeunFolder() + "/.tmp-alive"));
  EXPECT_FALSE(fs::exists(calibration));
}

TEST_F(Folder, APublisherThatSaysSoTakesStepsAway) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  fixture::CorrectionOptions options = fixture::DefaultCorrection(flow_);
  options.steps = {2};
  PublishAsk ask = {
      .model = "tiny_flow", .method = "heun", .files = fixture::TinyCorrection(flow_, options)};
  const auto refused = Publish(ask);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("allow_narrower"));
  ask.may_narrow = true;
  const auto passed = Publish(ask);
  EXPECT_TRUE(passed.ok()) << passed.status();
}

TEST_F(Folder, AnExaminationPausesWhileRequestsAreServed) {
  std::atomic<int> asked = 0;
  Open({.busy = [&] { return ++asked > 0; }});
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());  // and ends, though they are served all the time
  EXPECT_GT(asked, 10);
}

}  // namespace
}  // namespace hyperserve
