#include "training/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using ::testing::HasSubstr;

class PublishTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteModel(flow_, folder_.path()).ok());
    const auto made = WriteGeneration(
        work_.path(), fixture::TinyCorrection(flow_, fixture::DefaultCorrection(flow_)));
    ASSERT_TRUE(made.ok()) << made.status();
    options_ = {
        .generation = work_.path() + "/1", .model = flow_.name, .to_folder = folder_.path()};
  }
  const fixture::LinearModel flow_ = fixture::TinyFlow();
  const TemporaryFolder folder_, work_;
  PublishOptions options_;
};

TEST_F(PublishTest, ToAFolderMakesWholeGenerationsWithRisingNumbers) {
  const std::string model_folder = folder_.path() + "/" + flow_.name;
  for (const char* number : {"1", "2"}) {
    const absl::Status published = Publish(options_);
    ASSERT_TRUE(published.ok()) << published;
    const std::string generation = model_folder + "/hypersolvers/heun/" + number;
    const auto files = ReadGeneration(generation);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(*files, *ReadGeneration(options_.generation));
    EXPECT_TRUE(Hypersolver::Load(generation, *Model::Load(model_folder).value()).ok());
  }
}

TEST_F(PublishTest, AnotherBaseIsRefused) {
  auto other = fixture::DefaultCorrection(flow_);
  other.base_digest = std::string(64, 'a');
  ASSERT_TRUE(WriteGeneration(work_.path(), fixture::TinyCorrection(flow_, other)).ok());
  options_.generation = work_.path() + "/2";
  EXPECT_EQ(Publish(options_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ListGenerations(
                  HypersolverFolder(folder_.path() + "/" + flow_.name, {.method = Method::kHeun}))
                  .empty());
}

TEST_F(PublishTest, SaysWhatIsMissing) {
  options_.model = "no_such_model";
  EXPECT_FALSE(Publish(options_).ok());
  options_.model = "../tiny_flow";
  EXPECT_EQ(Publish(options_).code(), absl::StatusCode::kInvalidArgument);
  options_ = {.generation = work_.path() + "/1", .model = flow_.name};
  EXPECT_THAT(std::string(Publish(options_).message()), HasSubstr("--to"));
}

TEST_F(PublishTest, NoDaemonThereIsUnavailable) {
  // Port 1 of the loopback address: nothing listens there.
  options_.to_folder.clear();
  options_.admin_address = "127.0.0.1:1";
  options_.deadline = absl::Seconds(2);
  const absl::Status published = Publish(options_);
  EXPECT_TRUE(absl::IsUnavailable(published) || absl::IsDeadlineExceeded(published)) << published;
}

}  // namespace
}  // namespace hyperserve
