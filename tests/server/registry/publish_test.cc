// Candidates by RPC and by folder: what passes, what is refused and why, rollback, restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "absl/strings/str_replace.h"
#include "core/io/tensor.h"
#include "core/model/net/norms.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "server/registry/registry.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Kind = Registry::Event::Kind;

class PublishTest : public RegistryFixture {
 protected:
  // Publishes files that must be refused, and expects that nothing else changes.
  void ExpectRefused(GenerationFiles files, const std::string& reason,
                     const std::string& method = "heun") {
    const int64_t active = Active();
    const int64_t previous = Previous();
    const auto outcome = Publish(std::move(files), std::nullopt, method);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()), HasSubstr(reason));
    EXPECT_EQ(Active(), active);
    EXPECT_EQ(Previous(), previous);
  }
  std::string Edited(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = Scaled(1.0).at(file);
    EXPECT_THAT(text, HasSubstr(from));
    return absl::StrReplaceAll(text, {{from, to}});
  }
  void WaitUntil(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(condition());
  }
};

TEST_F(PublishTest, PassesSwapsAndRemembers) {
  Open();
  EXPECT_EQ(Active(), 0);
  const auto first = Publish(Scaled(0.5));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->generation, 1);
  EXPECT_EQ(first->previous_generation, 0);
  ASSERT_EQ(first->gate.size(), 4u);  // K = 1 to 4 are served; 3 is not claimed
  EXPECT_FALSE(first->gate[2].claimed);
  EXPECT_FALSE(first->gate[0].active_error.has_value());
  EXPECT_LT(first->gate[0].candidate_error, first->gate[0].base_error);
  EXPECT_GT(first->seconds, 0.0);
  const auto second = Publish(Scaled(1.0));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->generation, 2);
  EXPECT_EQ(second->previous_generation, 1);
  EXPECT_LT(second->gate[1].candidate_error, *second->gate[1].active_error);
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(Previous(), 1);
  EXPECT_EQ(*ReadActive(HeunFolder()), 2);
  EXPECT_TRUE(ReadVerdicts(HeunFolder())->at(2).passed);
  EXPECT_THAT(ReadVerdicts(HeunFolder())->at(2).reason, HasSubstr("K = 4: error "));
  ASSERT_EQ(Events(Kind::kPublished).size(), 2u);
  EXPECT_EQ(Events(Kind::kPublished)[1].source, "rpc");
  EXPECT_EQ(Events(Kind::kPublished)[1].method, "heun");
}

TEST_F(PublishTest, RefusesWhatIsNoBetterThanTheBase) {
  Open();
  ExpectRefused(Scaled(0.0), "does not beat the classical method");
  ExpectRefused(Scaled(-1.0), "does not beat the classical method");
  const auto verdicts = *ReadVerdicts(HeunFolder());
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_FALSE(verdicts.at(2).passed);
  EXPECT_THAT(verdicts.at(2).reason, HasSubstr("K = 1: error "));
  EXPECT_EQ(*ReadActive(HeunFolder()), std::nullopt);
  EXPECT_EQ(Events(Kind::kRefused).size(), 2u);
}

TEST_F(PublishTest, RefusesWhatIsWorseThanTheActiveBeyondTheMargin) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  ExpectRefused(Scaled(0.3), "worse than the active generation");
  EXPECT_TRUE(Publish(Scaled(0.499)).ok());  // 0.2 % worse
}

TEST_F(PublishTest, RefusesDamagedAndForeignFiles) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  GenerationFiles files = Scaled(1.0);
  files["weights.safetensors"].resize(files["weights.safetensors"].size() - 8);
  ExpectRefused(files, "weights.safetensors");

  files = Scaled(1.0);
  files["weights.safetensors"] =
      fixture::SafetensorsOf({{"net.0.weight", {5, 2}, std::vector<double>(10, 0.0)}});
  ExpectRefused(files, "net.0.weight");

  files["weights.safetensors"] =
      fixture::SafetensorsOf({{"net.0.weight",
                               {2, 5},
                               std::vector<double>(10, std::numeric_limits<double>::quiet_NaN())}});
  ExpectRefused(files, "not finite");

  files = Scaled(1.0);
  files["hypersolver.json"] = "{\"format\": 1";
  ExpectRefused(files, "hypersolver.json");

  fixture::CorrectionOptions other = fixture::DefaultCorrection(flow_);
  other.base_digest = std::string(64, 'a');
  ExpectRefused(fixture::TinyCorrection(flow_, other), other.base_digest->substr(0, 64));

  files = Scaled(1.0);
  files["calibration.json"] = PrintCalibration({.base_digest = std::string(64, 'b')});
  ExpectRefused(files, "calibration.json");

  EXPECT_EQ(ReadVerdicts(HeunFolder())->size(), 6u);  // files without a valid spec get no number
  EXPECT_EQ(ListGenerations(HeunFolder()), std::vector<int64_t>{1});
  EXPECT_EQ(Active(), 1);
}

TEST_F(PublishTest, RefusesClaimsThatDoNotHold) {
  Open();
  GenerationFiles files = Scaled(1.0);
  files["hypersolver.json"] = Edited("hypersolver.json", "noise_to_data", "forward");
  ExpectRefused(files, "direction");
  // A correction that is exact in one direction is wrong in the other.
  files["hypersolver.json"] = Edited("hypersolver.json", "noise_to_data", "data_to_noise");
  ExpectRefused(files, "does not beat the classical method");
  files["hypersolver.json"] = Edited("hypersolver.json", "\"steps\": [1, 2, 4]", "\"steps\": [8]");
  ExpectRefused(files, "steps lists 8: step size 0.125 lies outside");
  files["hypersolver.json"] = Edited("hypersolver.json", "\"steps\": [1, 2, 4]", "\"steps\": []");
  ExpectRefused(files, "steps");
  files["hypersolver.json"] = Edited("hypersolver.json", "\"heun\"", "\"leapfrog\"");
  ExpectRefused(files, "leapfrog");
  ExpectRefused(Scaled(1.0), "method is heun, published as euler", "euler");
  EXPECT_FALSE(fs::exists(repository() + "/tiny_flow/hypersolvers/euler"));
  EXPECT_EQ((*registry_->Pin("tiny_flow"))->corrections.size(), 1u);
}

TEST_F(PublishTest, RefusesProbesThatDoNotFit) {
  Open();
  const auto with_probe = [&](const Shape& shape, double value) {
    GenerationFiles files = Scaled(1.0);
    files["probe.safetensors"] =
        fixture::SafetensorsOf({{"x", shape, std::vector<double>(*ElementCount(shape), value)}});
    return files;
  };
  ExpectRefused(with_probe({15, 2}, 1.0), "[15, 2], wanted 16 to 256 rows of [2]");
  ExpectRefused(with_probe({257, 2}, 1.0), "[257, 2]");
  ExpectRefused(with_probe({16, 3}, 1.0), "[16, 3]");
  ExpectRefused(with_probe({16, 2}, std::nan("")), "not finite");
  GenerationFiles files = Scaled(1.0);
  files["probe.safetensors"] =
      fixture::SafetensorsOf({{"y", {16, 2}, std::vector<double>(32, 1.0)}});
  ExpectRefused(files, "probe.safetensors: ");
}

TEST_F(PublishTest, WrongCallsLeaveNothingBehind) {
  Open();
  GenerationFiles files = Scaled(1.0);
  files["../ACTIVE"] = "1";
  EXPECT_EQ(Publish(files).status().code(), absl::StatusCode::kInvalidArgument);
  files = Scaled(1.0);
  files.erase("weights.safetensors");
  EXPECT_EQ(Publish(files).status().code(), absl::StatusCode::kInvalidArgument);
  files = Scaled(1.0);
  files["MANIFEST.json"] = R"({"format": 1, "files": []})";
  EXPECT_EQ(Publish(files).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto unknown = Publish(Scaled(1.0), std::nullopt, "leapfrog");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  const auto absent = Publish(Scaled(1.0), std::nullopt, "heun", "nobody");
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr("tiny_flow"));
  EXPECT_EQ(Publish(Scaled(1.0), 3).status().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(fs::exists(HeunFolder()));
  EXPECT_TRUE((*registry_->Pin("tiny_flow"))->corrections.empty());
}

TEST_F(PublishTest, OfARefusedCandidateTheVerdictStays) {
  Open();
  ExpectRefused(Scaled(0.0), "does not beat");
  EXPECT_FALSE(fs::exists(HeunFolder() + "/1"));
  EXPECT_FALSE(ReadVerdicts(HeunFolder())->at(1).passed);
  EXPECT_EQ(Rollback(1).status().code(), absl::StatusCode::kFailedPrecondition);
  Open();
  EXPECT_EQ(Publish(Scaled(1.0))->generation, 2);
}

TEST_F(PublishTest, RemovedFoldersRestartNoNumbering) {
  Open();
  for (const double scale : {0.2, 0.4}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  fs::remove_all(repository() + "/tiny_flow/hypersolvers");
  EXPECT_EQ(Publish(Scaled(0.6))->generation, 3);
  fs::remove_all(repository() + "/tiny_flow");
  const auto gone = Publish(Scaled(0.8));
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(gone.status().message()), HasSubstr("tiny_flow/model.json is gone"));
  EXPECT_FALSE(fs::exists(repository() + "/tiny_flow"));
  EXPECT_EQ(Active(), 3);
}

TEST_F(PublishTest, NumbersBelowZeroAndUnknownMethodsAreNamed) {
  Open();
  const auto parent = Publish(Scaled(0.5), -3);
  EXPECT_EQ(parent.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parent.status().message()), HasSubstr("parent_generation -3"));
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  const auto negative = Rollback(-7);
  EXPECT_EQ(negative.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(negative.status().message()), HasSubstr("generation -7"));
  const auto unknown = Rollback(0, "euler");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("those it has: heun"));
}

TEST_F(PublishTest, ParentGenerationMustBeActive) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.2), 0).ok());
  EXPECT_EQ(Publish(Scaled(0.4), 0).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Publish(Scaled(0.4), 1).ok());
  const auto late = Publish(Scaled(0.6), 1);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("active is 2"));
  EXPECT_EQ(ListGenerations(HeunFolder()).size(), 2u);
  EXPECT_TRUE(Publish(Scaled(0.6)).ok());
}

TEST_F(PublishTest, RollsBackAndForth) {
  Open();
  EXPECT_EQ(Rollback().status().code(), absl::StatusCode::kNotFound);
  for (const double scale : {0.2, 0.4, 0.6}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  ExpectRefused(Scaled(0.0), "does not beat");
  const auto back = Rollback();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->generation, 2);
  EXPECT_EQ(back->previous_generation, 3);
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(*ReadActive(HeunFolder()), 2);
  EXPECT_EQ(Rollback(1)->generation, 1);
  EXPECT_EQ(Previous(), 2);
  EXPECT_EQ(Rollback(3)->generation, 3);
  EXPECT_EQ(Rollback(3)->generation, 3);  // is active already
  EXPECT_EQ(Previous(), 1);
  EXPECT_EQ(Rollback(4).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Rollback(9).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Rollback(0, "euler").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Rollback(0, "heun", "nobody").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Active(), 3);
  EXPECT_EQ(Publish(Scaled(0.9))->generation, 5);
}

TEST_F(PublishTest, RestartKeepsActiveAndUndoesNoRollback) {
  Open();
  for (const double scale : {0.2, 0.4, 0.6}) ASSERT_TRUE(Publish(Scaled(scale)).ok());
  ASSERT_TRUE(Rollback().ok());
  Open();
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(Previous(), 1);
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.3)).value(), 4);  // worse than 2
  Open();
  EXPECT_EQ(Active(), 2);
  EXPECT_FALSE(ReadVerdicts(HeunFolder())->at(4).passed);
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.8)).value(), 5);
  Open();
  EXPECT_EQ(Active(), 5);
  EXPECT_EQ(Previous(), 2);
  EXPECT_EQ(Events(Kind::kPublished).back().source, "start");
}

TEST_F(PublishTest, WithoutActiveTheHighestThatPasses) {
  for (const double scale : {0.2, 0.6, 0.0}) {
    ASSERT_TRUE(WriteGeneration(HeunFolder(), Scaled(scale)).ok());
  }
  Open();
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(*ReadActive(HeunFolder()), 2);
  const auto verdicts = *ReadVerdicts(HeunFolder());
  EXPECT_FALSE(verdicts.at(3).passed);
  EXPECT_THAT(verdicts.at(1).reason, HasSubstr("generation 2 is newer"));
}

TEST_F(PublishTest, SaysWhyWhatIsActiveIsNotServed) {
  fs::create_directories(HeunFolder());
  ASSERT_TRUE(WriteActive(HeunFolder(), 7).ok());
  Open();
  EXPECT_EQ(Active(), 0);
  EXPECT_THAT(State().problem, HasSubstr("generation 7"));
  ASSERT_EQ(Events(Kind::kRefused).size(), 1u);
  EXPECT_EQ(Publish(Scaled(1.0))->generation, 8);
  EXPECT_EQ(State().problem, "");

  std::ofstream(HeunFolder() + "/8/weights.safetensors", std::ios::app) << "x";
  Open();
  EXPECT_EQ(Active(), 0);
  EXPECT_THAT(State().problem, HasSubstr("weights.safetensors"));

  std::ofstream(HeunFolder() + "/ACTIVE") << "eight";
  Open();
  EXPECT_EQ(Active(), 0);
  EXPECT_THAT(State().problem, HasSubstr("'eight' is not a generation"));
  ExpectRefused(Scaled(1.0), "'eight'");
}

TEST_F(PublishTest, ANewBaseOrphansCorrectionsAndSaysSo) {
  Open();
  ASSERT_TRUE(Publish(Scaled(1.0)).ok());
  std::ofstream(repository() + "/tiny_flow/model.json", std::ios::app) << "\n";
  Open();
  EXPECT_EQ(Active(), 0);
  EXPECT_THAT(State().problem, HasSubstr(BaseDigest(flow_.model_json, flow_.weights)));
  const auto pin = *registry_->Pin("tiny_flow");
  EXPECT_THAT(pin->problem, HasSubstr("calibration.json"));
  EXPECT_TRUE(pin->calibration.base_digest.empty());
}

TEST_F(PublishTest, FoldersGoThroughTheSameGate) {
  poll_seconds_ = 0.02;
  Open();
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.0)).value(), 1);
  WaitUntil([&] { return Events(Kind::kRefused).size() == 1; });
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.5)).value(), 2);
  WaitUntil([&] { return Active() == 2; });
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.1)).value(), 3);
  WaitUntil([&] { return Events(Kind::kRefused).size() == 2; });
  EXPECT_EQ(Events(Kind::kRefused)[1].source, "folder");
  EXPECT_EQ(Events(Kind::kRefused)[1].generation, 3);
  EXPECT_EQ(Active(), 2);
  EXPECT_EQ(Publish(Scaled(1.0), 2)->generation, 4);
}

TEST_F(PublishTest, PublishersRaceWithoutLoss) {
  Open();
  std::vector<std::thread> threads;
  std::atomic<int> passed = 0;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 4; ++j) passed += Publish(Scaled(0.5)).ok();
    });
    threads.emplace_back([&] {
      for (int j = 0; j < 4; ++j) EXPECT_TRUE(WriteGeneration(HeunFolder(), Scaled(0.5)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 8);
  EXPECT_EQ(ListGenerations(HeunFolder()).size(), 16u);
  EXPECT_EQ(*ReadActive(HeunFolder()), Active());
}

TEST_F(PublishTest, ReadOnlyServesAndChangesNothing) {
  ASSERT_EQ(WriteGeneration(HeunFolder(), Scaled(0.5)).value(), 1);
  Open({.read_only = true});
  EXPECT_EQ(Active(), 1);
  EXPECT_EQ(Publish(Scaled(1.0)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Rollback().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(fs::exists(HeunFolder() + "/ACTIVE"));
  EXPECT_FALSE(fs::exists(HeunFolder() + "/VERDICTS.json"));
}

}  // namespace
}  // namespace hyperserve
