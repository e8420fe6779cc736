// Models that come, change and go while the registry serves others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "core/model/net/model.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"
#include "tests/server/registry/registry_fixture.h"
#include "tests/testing/model_fixture.h"
#include "tests/testing/package_fixture.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using ::testing::HasSubstr;
using Kind = Registry::Event::Kind;

class ModelsTest : public RegistryFixture {
 protected:
  absl::Status Load(const std::string& model) {
    return WaitFor([&](auto done) { registry_->LoadModel(model, {}, std::move(done)); });
  }
  absl::Status Unload(const std::string& model) {
    return WaitFor([&](auto done) { registry_->UnloadModel(model, {}, std::move(done)); });
  }
  static absl::Status WaitFor(const std::function<void(std::function<void(absl::Status)>)>& call) {
    std::promise<absl::Status> promise;
    call([&](const absl::Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  }
  static void WaitUntil(const std::function<bool()>& condition) {
    for (int i = 0; i < 1500 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(condition());
  }
  bool Served(const std::string& model) const { return registry_->Pin(model).ok(); }
  // The same model under another base digest.
  void ChangeBase() {
    std::ofstream(repository() + "/tiny_flow/model.json", std::ios::app) << "\n";
  }
  std::string Digest() const { return (*registry_->Pin("tiny_flow"))->model->base_digest(); }
};

TEST_F(ModelsTest, CodeIsRunWhereTheOptionNamesTheModel) {
  Open();
  fixture::WriteCodedFlow(repository(), "coded");
  const absl::Status refused = Load("coded");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("name the model in --allow_code"));
  EXPECT_FALSE(Served("coded"));
  Open({.allow_code = {"coded"}});
  EXPECT_TRUE(Served("coded"));
  EXPECT_TRUE((*registry_->Pin("coded"))->model->solvable());
}

TEST_F(ModelsTest, ANewModelIsLoadedByCall) {
  Open();
  const fixture::LinearModel classifier = fixture::TinyClassifier();
  EXPECT_EQ(Load(classifier.name).code(), StatusCode::kNotFound);
  ASSERT_TRUE(fixture::WriteModel(classifier, repository()).ok());
  ASSERT_TRUE(Load(classifier.name).ok());
  EXPECT_TRUE(Served(classifier.name));
  EXPECT_EQ(Load(classifier.name).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Load("../x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Events(Kind::kModelLoaded).back().source, "rpc");
}

TEST_F(ModelsTest, AChangedModelIsSwappedWholeAndItsCorrectionsAreSetAside) {
  Open();
  ASSERT_TRUE(Publish(Scaled(0.5)).ok());
  std::shared_ptr<const ServedModel> pinned = *registry_->Pin("tiny_flow");
  const std::string before = Digest();
  ChangeBase();
  ASSERT_TRUE(Load("tiny_flow").ok());
  EXPECT_NE(Digest(), before);
  EXPECT_EQ(Active(), 0);
  EXPECT_THAT(State().problem, HasSubstr("base_digest"));
  EXPECT_EQ(pinned->model->base_digest(), before);  // whoever holds it goes on with it
  EXPECT_EQ(pinned->Find({.method = Method::kHeun})->active->number, 1);
  // The old one is destroyed once nobody holds it.
  const std::weak_ptr<const Model> old = pinned->model;
  pinned.reset();
  WaitUntil([&] { return old.expired(); });
}

TEST_F(ModelsTest, AChangedModelThatDoesNotFitLeavesTheOldOne) {
  Open();
  const std::string before = Digest();
  std::ofstream(repository() + "/tiny_flow/model.json") << "{";
  EXPECT_EQ(Load("tiny_flow").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Digest(), before);
  EXPECT_THAT((*registry_->Pin("tiny_flow"))->problem, HasSubstr("is not used"));
  EXPECT_EQ(Events(Kind::kModelRefused).size(), 1u);
}

TEST_F(ModelsTest, AnUnloadedModelStaysOutWhateverThePollSees) {
  poll_seconds_ = 0.01;
  Open();
  ASSERT_TRUE(Unload("tiny_flow").ok());
  EXPECT_FALSE(Served("tiny_flow"));
  EXPECT_EQ(Unload("tiny_flow").code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(registry_->Pin("tiny_flow").status().message()),
              HasSubstr("no model 'tiny_flow'; none is loaded"));
  ChangeBase();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(Served("tiny_flow"));
  EXPECT_EQ(Publish(Scaled(0.5)).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Load("tiny_flow").ok());
  EXPECT_TRUE(Served("tiny_flow"));
  EXPECT_EQ(Events(Kind::kModelUnloaded).size(), 1u);
}

TEST_F(ModelsTest, ThePollFindsNewAndChangedModelsOnceNobodyWritesThem) {
  poll_seconds_ = 0.01;
  Open();
  const fixture::LinearModel classifier = fixture::TinyClassifier();
  ASSERT_TRUE(fixture::WriteModel(classifier, repository()).ok());
  const std::string before = Digest();
  ChangeBase();
  EXPECT_FALSE(Served(classifier.name));  // it was written a moment ago
  WaitUntil([&] { return Served(classifier.name) && Digest() != before; });
  EXPECT_EQ(Events(Kind::kModelLoaded).back().source, "folder");
}

TEST_F(ModelsTest, AFolderThatIsGoneIsSaidOnceAndItsModelStays) {
  poll_seconds_ = 0.01;
  Open();
  fs::rename(repository() + "/tiny_flow", repository() + "-aside");
  WaitUntil([&] { return Events(Kind::kModelRefused).size() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(Events(Kind::kModelRefused).size(), 1u);
  EXPECT_TRUE(Served("tiny_flow"));
  EXPECT_THAT((*registry_->Pin("tiny_flow"))->problem, HasSubstr("is gone"));
  fs::rename(repository() + "-aside", repository() + "/tiny_flow");
  WaitUntil([&] { return (*registry_->Pin("tiny_flow"))->problem.empty(); });
}

TEST_F(ModelsTest, ARefusedFolderIsTriedAgainOnlyWhenItChanges) {
  poll_seconds_ = 0.01;
  const fixture::LinearModel classifier = fixture::TinyClassifier();
  ASSERT_TRUE(fixture::WriteModel(classifier, repository()).ok());
  const std::string spec = repository() + "/" + classifier.name + "/model.json";
  std::ofstream(spec) << "{";
  Open();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(Events(Kind::kModelRefused).size(), 1u);
  std::ofstream(spec) << classifier.model_json;
  WaitUntil([&] { return Served(classifier.name); });
}

}  // namespace
}  // namespace hyperserve
