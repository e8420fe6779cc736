#include "core/model/repository/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/io/file.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/verdicts.h"
#include "core/plan/method.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

GenerationFiles SomeFiles() {
  return {{"hypersolver.json", "{}"},
          {"weights.safetensors", std::string("w\0w", 3)},
          {"probe.safetensors", "p"}};
}

class RepositoryTest : public ::testing::Test {
 protected:
  TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path() + "/model/hypersolvers/euler";
};

TEST(BaseDigestTest, IsTheDigestOfBothRawDigests) {
  // (printf abc | openssl dgst -sha256 -binary; printf de | openssl dgst -sha256 -binary) |
  // sha256sum
  EXPECT_EQ(BaseDigest("abc", "de"),
            "a72656926e9116a5496c4967420d1df4a2c7794b5581fcf16f1b792642648c10");
  EXPECT_NE(BaseDigest("abc", "de"), BaseDigest("de", "abc"));
}

TEST(CheckNameTest, TakesFolderNamesOnly) {
  for (const char* name : {"fashion", "a", "0", "v1.2-x_y"}) {
    EXPECT_TRUE(CheckName(name).ok()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("a/b"),
        std::string("A"), std::string("-a"), std::string("a b"), std::string("a\0b", 3),
        std::string(65, 'a')}) {
    EXPECT_EQ(CheckName(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(RepositoryTest, ListsModelsMethodsAndGenerations) {
  const std::string& root = temporary_.path();
  fs::create_directories(root + "/b/hypersolvers/euler/2");
  fs::create_directories(root + "/b/hypersolvers/euler/10");
  fs::create_directories(root + "/b/hypersolvers/euler/007");
  fs::create_directories(root + "/b/hypersolvers/euler/.tmp-1");
  fs::create_directories(root + "/b/hypersolvers/alpha(0.75)");
  fs::create_directories(root + "/b/hypersolvers/alpha(0.750)");
  fs::create_directories(root + "/b/hypersolvers/leapfrog");
  fs::create_directories(root + "/a");
  fs::create_directories(root + "/empty");
  Write(root + "/a/model.json", "{}");
  Write(root + "/b/model.json", "{}");
  fs::create_directory_symlink("2", root + "/b/hypersolvers/euler/3");
  EXPECT_THAT(*ListModelFolders(root), ElementsAre(root + "/a", root + "/b"));
  EXPECT_THAT(ListHypersolverMethods(root + "/b"),
              ElementsAre(MethodChoice{Method::kAlpha, 0.75}, MethodChoice{Method::kEuler}));
  EXPECT_THAT(ListGenerations(root + "/b/hypersolvers/euler"), ElementsAre(2, 10));
  EXPECT_EQ(HypersolverFolder(root + "/b", {Method::kAlpha, 0.75}),
            root + "/b/hypersolvers/alpha(0.75)");
  EXPECT_EQ(ListModelFolders(root + "/nowhere").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RepositoryTest, WritesGenerationsThatReadBack) {
  const auto first = WriteGeneration(folder_, SomeFiles());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles()), 2);
  auto files = ReadGeneration(folder_ + "/1");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->erase("MANIFEST.json"), 1u);
  EXPECT_EQ(*files, SomeFiles());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("1", "2"));
  }
}

TEST_F(RepositoryTest, NeverUsesANumberAgain) {
  ASSERT_EQ(*WriteGeneration(folder_, SomeFiles()), 1);
  fs::remove_all(folder_ + "/1");
  ASSERT_TRUE(WriteVerdicts(folder_, {{4, {.passed = false, .reason = "worse"}}}).ok());
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles()), 5);
  ASSERT_TRUE(WriteActive(folder_, 9).ok());
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles()), 10);
  Write(folder_ + "/11", "a file took the name");
  fs::create_directory_symlink("10", folder_ + "/12");
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles()), 13);
}

TEST_F(RepositoryTest, UsesNoNumberThatTheCallerKnowsAsTaken) {
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles(), 6), 7);
  EXPECT_EQ(*WriteGeneration(folder_, SomeFiles(), 3), 8);
}

TEST_F(RepositoryTest, RemovesWhatKilledPublishersLeftLongAgo) {
  for (const char* name : {"/.tmp-old", "/.tmp-new", "/other"}) {
    fs::create_directories(folder_ + name);
    Write(folder_ + name + "/weights.safetensors", "w");
  }
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::minutes(61);
  fs::last_write_time(folder_ + "/.tmp-old", long_ago);
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/ACTIVE.tmp-old", "1").ok());
  fs::last_write_time(folder_ + "/ACTIVE.tmp-old", long_ago);
  fs::last_write_time(folder_ + "/other", long_ago);
  ASSERT_TRUE(WriteGeneration(folder_, SomeFiles()).ok());
  EXPECT_FALSE(fs::exists(folder_ + "/ACTIVE.tmp-old"));
  EXPECT_FALSE(fs::exists(folder_ + "/.tmp-old"));
  EXPECT_TRUE(fs::exists(folder_ + "/.tmp-new"));
  EXPECT_TRUE(fs::exists(folder_ + "/other"));
}

TEST_F(RepositoryTest, EndsAtTheLastNumber) {
  fs::create_directories(folder_);
  ASSERT_TRUE(WriteActive(folder_, kGenerationMax).ok());
  EXPECT_EQ(WriteGeneration(folder_, SomeFiles()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(RepositoryTest, RacingPublishersGetNumbersOfTheirOwn) {
  constexpr int kThreads = 4, kEach = 10;
  std::vector<std::vector<int64_t>> numbers(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kEach; ++j) {
        GenerationFiles files = SomeFiles();
        files["probe.safetensors"] = absl::StrCat(i, " ", j);
        numbers[i].push_back(*WriteGeneration(folder_, files));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> all;
  for (int i = 0; i < kThreads; ++i) {
    for (int j = 0; j < kEach; ++j) {
      all.insert(numbers[i][j]);
      const auto files = ReadGeneration(absl::StrCat(folder_, "/", numbers[i][j]));
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_EQ(files->at("probe.safetensors"), absl::StrCat(i, " ", j));
    }
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads * kEach));
  EXPECT_EQ(*all.rbegin(), kThreads * kEach);
}

TEST_F(RepositoryTest, RefusesFilesThatDoNotBelong) {
  for (const std::string& name : {std::string("../evil"), std::string("/etc/x"), std::string("a/b"),
                                  std::string("weights.bin"), std::string("")}) {
    GenerationFiles files = SomeFiles();
    files[name] = "x";
    const absl::Status status = WriteGeneration(folder_, files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  GenerationFiles missing = SomeFiles();
  missing.erase("probe.safetensors");
  EXPECT_THAT(std::string(WriteGeneration(folder_, missing).status().message()),
              HasSubstr("probe.safetensors is missing"));
  GenerationFiles large = SomeFiles();
  large["hypersolver.json"] = std::string((1 << 20) + 1, ' ');
  const absl::Status status = WriteGeneration(folder_, large).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("hypersolver.json: 1048577 bytes"));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(RepositoryTest, RefusesAGenerationThatDiffersFromItsManifest) {
  ASSERT_EQ(*WriteGeneration(folder_, SomeFiles()), 1);
  const std::string generation = folder_ + "/1";
  const auto refusal = [&] {
    const absl::Status status = ReadGeneration(generation).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  Write(generation + "/weights.safetensors", std::string("w\0", 2));
  EXPECT_THAT(refusal(), HasSubstr("weights.safetensors: 2 bytes, MANIFEST.json says 3"));
  Write(generation + "/weights.safetensors", std::string("w\1w", 3));
  EXPECT_THAT(refusal(), HasSubstr("weights.safetensors: SHA-256 is "));
  Write(generation + "/weights.safetensors", std::string("w\0w", 3));
  ASSERT_TRUE(ReadGeneration(generation).ok());
  Write(generation + "/calibration.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("calibration.json: does not stand in MANIFEST.json"));
  fs::remove(generation + "/calibration.json");
  Write(generation + "/notes.txt", "x");
  EXPECT_THAT(refusal(), HasSubstr("notes.txt: does not belong"));
  fs::remove(generation + "/notes.txt");
  fs::rename(generation + "/weights.safetensors", folder_ + "/elsewhere");
  fs::create_symlink("../elsewhere", generation + "/weights.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("weights.safetensors: not a plain file"));
  fs::remove(generation + "/weights.safetensors");
  fs::rename(folder_ + "/elsewhere", generation + "/weights.safetensors");
  fs::remove(generation + "/MANIFEST.json");
  EXPECT_THAT(refusal(), HasSubstr("MANIFEST.json is missing"));
  Write(generation + "/MANIFEST.json", "{\"format\": 1, \"surprise\": 2}");
  EXPECT_THAT(refusal(), HasSubstr("MANIFEST.json: "));
}

TEST_F(RepositoryTest, ChecksAManifestThatIsPublished) {
  GenerationFiles files = SomeFiles();
  files["MANIFEST.json"] = R"({"format": 1, "files": [{"name": "hypersolver.json", "bytes": 3}]})";
  const absl::Status status = WriteGeneration(folder_, files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("hypersolver.json: 2 bytes"));
  ASSERT_TRUE(WriteGeneration(folder_, SomeFiles()).ok());
  EXPECT_TRUE(WriteGeneration(folder_, *ReadGeneration(folder_ + "/1")).ok());
}

TEST_F(RepositoryTest, ActiveIsANumberOrNothing) {
  fs::create_directories(folder_);
  EXPECT_EQ(*ReadActive(folder_), std::nullopt);
  ASSERT_TRUE(WriteActive(folder_, 12).ok());
  EXPECT_EQ(*ReadActive(folder_), 12);
  for (const char* text : {"", "0", "-1", "01", "1x", "../1", "9999999999", "1\n2"}) {
    Write(folder_ + "/ACTIVE", text);
    EXPECT_EQ(ReadActive(folder_).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(ReadActive(folder_).status().message()), HasSubstr("'1\\n2'"));
}

TEST_F(RepositoryTest, VerdictsReadBack) {
  fs::create_directories(folder_);
  EXPECT_THAT(*ReadVerdicts(folder_), IsEmpty());
  ASSERT_TRUE(WriteVerdicts(folder_, {{1, {.passed = true, .reason = "fine \"so\""}},
                                      {3, {.passed = false, .reason = "bytes \xff\x01"}}})
                  .ok());
  const auto verdicts = ReadVerdicts(folder_);
  ASSERT_TRUE(verdicts.ok()) << verdicts.status();
  EXPECT_TRUE(verdicts->at(1).passed);
  EXPECT_EQ(verdicts->at(1).reason, "fine \"so\"");
  EXPECT_FALSE(verdicts->at(3).passed);
  EXPECT_EQ(verdicts->at(3).reason, "bytes ??");
  for (const char* text : {"", "{", "[]", "{\"format\": 2}", "{\"format\": 1, \"x\": 1}",
                           "{\"format\": 1, \"verdicts\": [{\"generation\": -1}]}"}) {
    Write(folder_ + "/VERDICTS.json", text);
    EXPECT_EQ(ReadVerdicts(folder_).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hyperserve
