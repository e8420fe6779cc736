#include "server/registry/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "core/io/file.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/plan.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/package_fixture.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CheckTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(fixture::WriteTinyRepository(root()).ok()); }
  const std::string& root() const { return temporary_.path(); }
  void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(root() + "/" + path, std::ios::binary) << bytes;
  }

  const TemporaryFolder temporary_;
  const fixture::LinearModel flow_ = fixture::TinyFlow();
};

TEST_F(CheckTest, FindsNothingInWhatFits) {
  EXPECT_THAT(CheckModelFolder(root()), IsEmpty());
  EXPECT_THAT(CheckModelFolder(root() + "/tiny_flow"), IsEmpty());
  EXPECT_THAT(CheckModelFolder(root() + "/tiny_flow/"), IsEmpty());
}

TEST_F(CheckTest, SaysWhichModelsBringCodeAndRunsNone) {
  EXPECT_THAT(ModelsWithCode(root()), IsEmpty());
  fixture::WriteCodedFlow(root(), "coded");
  Write("coded/field.pt2", "bytes that no loader would take");
  EXPECT_THAT(CheckModelFolder(root()), IsEmpty());
  const auto line = AllOf(HasSubstr("coded/field.pt2: code, SHA-256 "),
                          HasSubstr(Sha256Hex("bytes that no loader would take")),
                          HasSubstr("--allow_code=coded"));
  EXPECT_THAT(ModelsWithCode(root()), ElementsAre(line));
  EXPECT_THAT(ModelsWithCode(root() + "/coded/"), ElementsAre(line));
  fs::remove(root() + "/coded/field.pt2");
  EXPECT_THAT(CheckModelFolder(root()), ElementsAre(HasSubstr("the file is missing or empty")));
}

TEST_F(CheckTest, SaysWhereThereIsNoModel) {
  EXPECT_THAT(CheckModelFolder(root() + "/nowhere"), ElementsAre(HasSubstr("nowhere")));
  fs::create_directories(root() + "/empty");
  EXPECT_THAT(CheckModelFolder(root() + "/empty"), ElementsAre(HasSubstr("holds no model.json")));
}

TEST_F(CheckTest, ReadsALoneCandidateAgainstItsModel) {
  GenerationFiles files = fixture::TinyCorrection(flow_, fixture::DefaultCorrection(flow_));
  const TemporaryFolder candidate;
  const auto write = [&] {
    for (const auto& [name, bytes] : files) {
      std::ofstream(candidate.path() + "/" + name, std::ios::binary) << bytes;
    }
  };
  write();
  EXPECT_THAT(CheckModelFolder(candidate.path(), root()), IsEmpty());
  EXPECT_THAT(CheckModelFolder(root() + "/tiny_flow/hypersolvers/heun/1"), IsEmpty());
  EXPECT_THAT(CheckModelFolder(candidate.path(), "nowhere"),
              ElementsAre(HasSubstr("hypersolver.json: no model of 'nowhere' is its base")));
  files["weights.safetensors"] = fixture::SafetensorsOf({{"net.7.weight", {1}, {1}}});
  write();
  EXPECT_THAT(CheckModelFolder(candidate.path(), root()),
              Contains(HasSubstr("'net.7.weight' [1] is not one that the spec expects")));
  fs::remove(candidate.path() + "/weights.safetensors");
  EXPECT_THAT(CheckModelFolder(candidate.path(), root()),
              ElementsAre(HasSubstr("weights.safetensors")));
}

TEST_F(CheckTest, NamesEveryTensorThatDoesNotFit) {
  Write("tiny_flow/weights.safetensors",
        fixture::SafetensorsOf({{"field.0.weight", {1, 2}, {1, 2}}, {"field.2.weight", {1}, {1}}}));
  EXPECT_THAT(CheckModelFolder(root() + "/tiny_flow"),
              ElementsAre(AllOf(HasSubstr("tiny_flow/weights.safetensors: "),
                                HasSubstr("'field.0.weight' has shape [1, 2], wanted [2, 2]")),
                          HasSubstr("'field.2.weight' [1] is not one that the spec expects"),
                          HasSubstr("'field.1.weight' [2, 2] is missing")));
}

TEST_F(CheckTest, NamesUnreadableParts) {
  Write("tiny_flow/model.json", "{\"format\": 1, \"kind\": \"oracle\"}");
  EXPECT_THAT(CheckModelFolder(root()), ElementsAre(HasSubstr("tiny_flow/model.json: ")));
  fs::remove(root() + "/tiny_flow/weights.safetensors");
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(StartsWith(root() + "/tiny_flow/weights.safetensors: cannot")));
}

TEST_F(CheckTest, NamesWhatBelongsToAnotherBase) {
  Write("tiny_flow/model.json", flow_.model_json + "\n");
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(HasSubstr("tiny_flow/calibration.json: measured on base "),
                          AllOf(HasSubstr("heun/1"), HasSubstr("base_digest"))));
}

TEST_F(CheckTest, OneLineAProblemWhateverTheFilesHold) {
  Write("tiny_flow/model.json", "{\"format\": 1,\n \"kind\": \"two\nlines\",\n oops");
  Write("tiny_classifier/model.json",
        absl::StrReplaceAll(fixture::TinyClassifier().model_json,
                            {{"\"classifier\"", "\"a\\r\\nforged: line\\u001b[31m\""}}));
  fs::create_directories(root() + "/tiny_flow/hypersolvers/two\nlines");
  fs::create_directories(root() + "/more\nlines");
  Write("more\nlines/model.json", "{}");
  const std::vector<std::string> problems = CheckModelFolder(root());
  EXPECT_GE(problems.size(), 4u);
  for (const std::string& problem : problems) {
    EXPECT_TRUE(std::none_of(problem.begin(), problem.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20;
    })) << problem;
  }
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("hypersolvers/two lines")));
  EXPECT_THAT(problems, ::testing::Contains(HasSubstr("forged: line")));
}

TEST_F(CheckTest, LooksThroughHypersolvers) {
  const std::string heun = root() + "/tiny_flow/hypersolvers/heun";
  fs::create_directories(root() + "/tiny_flow/hypersolvers/leapfrog");
  ASSERT_TRUE(WriteActive(heun, 4).ok());
  GenerationFiles files = fixture::TinyCorrection(flow_, fixture::DefaultCorrection(flow_));
  files["probe.safetensors"] = fixture::SafetensorsOf({{"x", {3, 2}, std::vector<double>(6, 1)}});
  ASSERT_EQ(WriteGeneration(heun, files).value(), 5);
  files["weights.safetensors"] = fixture::SafetensorsOf({{"net.0.weight", {1}, {0}}});
  ASSERT_EQ(WriteGeneration(heun, files).value(), 6);
  std::ofstream(heun + "/1/weights.safetensors", std::ios::app) << "x";
  const auto damaged =
      AllOf(StartsWith(heun + "/1: weights.safetensors: "), HasSubstr("MANIFEST.json says"));
  const auto small_probe =
      AllOf(HasSubstr("heun/5"), HasSubstr("probe.safetensors"), HasSubstr("[3, 2]"));
  const auto wrong_shape =
      AllOf(HasSubstr("heun/6/weights.safetensors"), HasSubstr("wanted [2, 5]"));
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(HasSubstr("leapfrog"),
                          HasSubstr("heun/ACTIVE: says generation 4, which is not there"), damaged,
                          small_probe, wrong_shape));
  // ACTIVE must not name a refused generation. Problems of a generation are named in spite of its
  // verdict.
  ASSERT_TRUE(WriteVerdicts(heun, {{1, {.reason = "damaged"}},
                                   {5, {.reason = "small probe"}},
                                   {6, {.reason = "wrong shape"}}})
                  .ok());
  ASSERT_TRUE(WriteActive(heun, 6).ok());
  EXPECT_THAT(
      CheckModelFolder(root()),
      ElementsAre(HasSubstr("leapfrog"),
                  AllOf(HasSubstr("heun/ACTIVE"), HasSubstr("which was refused: wrong shape")),
                  damaged, small_probe, wrong_shape));
}

TEST_F(CheckTest, ADefaultPlanThatNobodyCouldRunIsNamed) {
  const std::string path = root() + "/tiny_flow/calibration.json";
  const auto with_default = [&](const char* plan) {
    Calibration calibration = *ParseCalibration(*ReadFile(path, kCalibrationBytesMax));
    calibration.default_plan = *ParsePlan(plan);
    Write("tiny_flow/calibration.json", PrintCalibration(calibration));
    return CheckModelFolder(root() + "/tiny_flow");
  };
  EXPECT_THAT(with_default("hyper_heun:2"), IsEmpty());
  EXPECT_THAT(with_default("hyper_heun:50"),
              ElementsAre(AllOf(StartsWith(path), HasSubstr("nobody could run the default plan "
                                                            "hyper_heun:50: generation 1: step"))));
  EXPECT_THAT(with_default("hyper_euler:2"),
              ElementsAre(HasSubstr("there is no generation of this correction")));
}

TEST_F(CheckTest, RefusedGenerationsMustFitToo) {
  const std::string methods = root() + "/tiny_flow/hypersolvers";
  ASSERT_TRUE(WriteVerdicts(methods + "/heun", {{1, {.reason = "no better"}}}).ok());
  fs::remove(methods + "/heun/ACTIVE");
  EXPECT_THAT(CheckModelFolder(root()), IsEmpty());
  fs::rename(methods + "/heun", methods + "/euler");
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(AllOf(StartsWith(methods + "/euler/1: "),
                                HasSubstr("method is heun, published as euler"))));
  fs::rename(methods + "/euler", methods + "/heun");
  fs::remove(methods + "/heun/1/MANIFEST.json");
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(AllOf(StartsWith(methods + "/heun/1"), HasSubstr("MANIFEST.json"))));
}

TEST_F(CheckTest, NamesFoldersThatAreNoGenerations) {
  const std::string heun = root() + "/tiny_flow/hypersolvers/heun";
  fs::copy(heun + "/1", heun + "/01");
  fs::create_directory_symlink("1", heun + "/2");
  fs::create_directories(heun + "/.tmp-mine");
  EXPECT_THAT(CheckModelFolder(root()),
              ElementsAre(AllOf(StartsWith(heun + "/01: is not read"), HasSubstr("leading zeros")),
                          AllOf(StartsWith(heun + "/2: is not read"), HasSubstr("no link"))));
}

}  // namespace
}  // namespace hyperserve
