#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "core/engine/device_runtime.h"
#include "hyperserve/v1/admin.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/services.h"
#include "tests/server/calls/served_fixture.h"
#include "tests/server/rpc/service_fixture.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

class AdminServiceTest : public testing::Test {
 protected:
  AdminServiceTest() { server_.Load(); }

  v1::PublishHypersolverRequest Candidate(double scale) {
    const auto tiny = fixture::TinyFlow();
    fixture::CorrectionOptions options = fixture::DefaultCorrection(tiny);
    options.scale = scale;
    v1::PublishHypersolverRequest request;
    request.set_model("tiny_flow");
    request.set_method("heun");
    for (const auto& [name, content] : fixture::TinyCorrection(tiny, options)) {
      v1::NamedFile* file = request.add_files();
      file->set_name(name);
      file->set_content(content);
    }
    return request;
  }

  TestServer server_{BatcherOptionsWith(), MakeDeviceRuntime("cpu").value()};
  grpc::ClientContext context_;
};

TEST_F(AdminServiceTest, PublishAndRollback) {
  v1::PublishHypersolverRequest request = Candidate(1.0);
  request.set_parent_generation(1);
  v1::PublishHypersolverReply published;
  grpc::Status status = server_.admin->PublishHypersolver(&context_, request, &published);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(published.generation(), 2);
  EXPECT_EQ(published.previous_generation(), 1);
  ASSERT_EQ(published.gate_size(), 4);
  EXPECT_LT(published.gate(0).candidate_error(), published.gate(0).base_error());

  grpc::ClientContext late;
  status = server_.admin->PublishHypersolver(&late, request, &published);
  EXPECT_EQ(status.error_code(), grpc::ABORTED);

  v1::RollbackHypersolverRequest back;
  back.set_model("tiny_flow");
  back.set_method("heun");
  v1::RollbackHypersolverReply rolled;
  grpc::ClientContext second;
  status = server_.admin->RollbackHypersolver(&second, back, &rolled);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(rolled.generation(), 1);
  EXPECT_EQ(rolled.previous_generation(), 2);
}

TEST_F(AdminServiceTest, WorseThanTheBaseIsRefusedWithNumbers) {
  v1::PublishHypersolverReply reply;
  const grpc::Status status = server_.admin->PublishHypersolver(&context_, Candidate(-1), &reply);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("K"));
}

TEST_F(AdminServiceTest, WrongRequests) {
  v1::PublishHypersolverReply reply;
  v1::PublishHypersolverRequest request = Candidate(1);
  request.set_model("nobody");
  EXPECT_EQ(server_.admin->PublishHypersolver(&context_, request, &reply).error_code(),
            grpc::NOT_FOUND);
  request = Candidate(1);
  *request.add_files() = request.files(0);
  grpc::ClientContext second;
  const grpc::Status status = server_.admin->PublishHypersolver(&second, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("twice"));
}

// A thread that waited for itself to end would abort the process.
TEST_F(AdminServiceTest, TheRegistryEndsWhileItsOwnThreadHoldsIt) {
  std::promise<void> held;
  server_.environment.registry()->LoadModel("tiny_flow", {}, [&](const absl::Status&) {
    const auto registry = server_.environment.registry();
    held.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  held.get_future().wait();
  server_.environment.set_registry(nullptr);
  EXPECT_EQ(server_.environment.registry(), nullptr);
}

TEST_F(AdminServiceTest, ModelsGoAndComeAndWatchersAreTold) {
  const auto watch = server_.admin->WatchModels(&context_, {});
  v1::WatchModelsReply news;
  const auto next = [&] {
    EXPECT_TRUE(watch->Read(&news));
    return news.event() + " " + news.model() + " " + news.method();
  };
  EXPECT_EQ(next(), "served tiny_classifier ");
  while (next() != "served tiny_flow heun") {
  }
  grpc::ClientContext second, third, fourth;
  v1::UnloadModelRequest unload;
  unload.set_model("tiny_flow");
  v1::UnloadModelReply unloaded;
  ASSERT_TRUE(server_.admin->UnloadModel(&second, unload, &unloaded).ok());
  EXPECT_EQ(next(), "unloaded tiny_flow ");
  EXPECT_EQ(server_.admin->UnloadModel(&third, unload, &unloaded).error_code(), grpc::NOT_FOUND);
  v1::LoadModelRequest load;
  load.set_model("tiny_flow");
  v1::LoadModelReply loaded;
  ASSERT_TRUE(server_.admin->LoadModel(&fourth, load, &loaded).ok());
  EXPECT_EQ(loaded.base_digest().size(), 64u);
  EXPECT_EQ(next(), "loaded tiny_flow ");
  EXPECT_EQ(news.source(), "rpc");
  EXPECT_EQ(next(), "published tiny_flow heun");
  server_.environment.events.End();
  EXPECT_FALSE(watch->Read(&news));
  EXPECT_EQ(watch->Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_F(AdminServiceTest, MessagesShowNoPathOfTheServer) {
  const std::string verdicts = server_.folder.path() + "/tiny_flow/hypersolvers/heun/VERDICTS.json";
  std::filesystem::remove(verdicts);
  std::filesystem::create_directories(verdicts + "/full");
  v1::PublishHypersolverReply reply;
  const grpc::Status status = server_.admin->PublishHypersolver(&context_, Candidate(1), &reply);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(), HasSubstr("tiny_flow/hypersolvers/heun/VERDICTS.json"));
  EXPECT_THAT(status.error_message(), testing::Not(HasSubstr(server_.folder.path())));
}

TEST(ToGrpcTest, MessagesAreUtf8WhateverStandsInNames) {
  EXPECT_EQ(ToGrpc(absl::NotFoundError("no model 'gr\xf6sse'")).error_message(),
            "no model 'gr?sse'");
  const grpc::Status cut = ToGrpc(absl::NotFoundError("plan '" + std::string(100000, '\xf6') +
                                                      "': unknown method; the methods are euler"));
  EXPECT_LE(cut.error_message().size(), 2048u);
  EXPECT_THAT(cut.error_message(), testing::StartsWith("plan '????"));
  EXPECT_THAT(cut.error_message(), testing::EndsWith("unknown method; the methods are euler"));
}

}  // namespace
}  // namespace hyperserve
