// Models that come and go while the daemon serves: LoadModel, UnloadModel, WatchModels and the
// polled folder, over the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/deadline.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/admin.pb.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using testing::Contains, testing::HasSubstr, testing::Not;

// Collects the events of WatchModels, as "model: event (source)", until it is destroyed.
class Watcher {
 public:
  explicit Watcher(const Daemon& daemon)
      : thread_([this, options = daemon.client_options()] {
          status_ = Client(options).WatchModels(
              Deadline::In(std::chrono::minutes(2)), [this](const v1::WatchModelsReply& event) {
                const std::lock_guard lock(mutex_);
                events_.push_back(absl::StrCat(event.model(), event.method().empty() ? "" : "/",
                                               event.method(), ": ", event.event(), " (",
                                               event.source(), ")"));
                return !over_;
              });
        }) {}
  // Ends with the next event, or with the daemon.
  ~Watcher() { thread_.join(); }
  void EndWithTheNext() {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  // All events so far, once `wanted` is among them; or after some seconds without it.
  std::vector<std::string> Await(const std::string& wanted) {
    for (int i = 0; i < 600; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (std::ranges::count(events_, wanted) > 0) return events_;
      }
      std::this_thread::sleep_for(milliseconds(50));
    }
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> events_;  // guarded by mutex_
  bool over_ = false;                // guarded by mutex_
  absl::Status status_;
  std::thread thread_;
};

class Models : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_.path()).ok());
    auto daemon = Daemon::Start(repository_.path(), {"--poll_seconds=0.2"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<Client>(daemon_->client_options());
  }
  static Deadline Soon() { return Deadline::In(kSoon); }
  absl::Status Load(const std::string& model) {
    v1::LoadModelRequest request;
    request.set_model(model);
    return client_->LoadModel(request, Soon()).status();
  }
  absl::Status Unload(const std::string& model) {
    v1::UnloadModelRequest request;
    request.set_model(model);
    return client_->UnloadModel(request, Soon()).status();
  }
  absl::Status Sample(const std::string& model = tiny::kFlow) {
    v1::SampleRequest request = tiny::SampleRows(1, "heun:1");
    request.mutable_options()->set_model(model);
    return client_->Sample(std::move(request), Soon()).status();
  }
  std::string Digest(const std::string& model) {
    const auto reply = client_->GetModel(model, Soon());
    return reply.ok() ? reply->model().base_digest() : std::string(reply.status().message());
  }
  // The tiny flow with its weights scaled, under a name of the folder.
  void WriteFlow(const std::string& name, float scale) const {
    fixture::LinearModel flow = fixture::TinyFlow();
    flow.name = name;
    const auto file = SafetensorsFile::Parse(flow.weights);
    ASSERT_TRUE(file.ok());
    std::map<std::string, HostTensor> scaled;
    std::map<std::string, TensorView, std::less<>> views;
    for (const auto& [tensor, view] : file->tensors()) {
      scaled[tensor] = HostTensor::CopyOf(view);
      for (float& number : scaled[tensor].as<float>()) number *= scale;
      views[tensor] = scaled[tensor].view();
    }
    flow.weights = SerializeSafetensors(views);
    ASSERT_TRUE(fixture::WriteModel(flow, repository_.path()).ok());
  }

  TemporaryFolder repository_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(Models, AnUnloadedModelStaysOutUntilItIsLoaded) {
  Watcher watcher(*daemon_);
  watcher.Await("tiny_flow: served ()");
  ASSERT_TRUE(Sample().ok());
  EXPECT_THAT(daemon_->Get("/metrics").body,
              HasSubstr("hyperserve_active_generation{method=\"heun\",model=\"tiny_flow\"} 1\n"));
  ASSERT_TRUE(Unload(tiny::kFlow).ok());
  EXPECT_EQ(Sample().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(daemon_->Get("/metrics").body,
              HasSubstr("hyperserve_active_generation{method=\"heun\",model=\"tiny_flow\"} 0\n"));
  EXPECT_EQ(Unload(tiny::kFlow).code(), absl::StatusCode::kNotFound);
  std::this_thread::sleep_for(milliseconds(1500));  // several looks at the folder
  EXPECT_EQ(Sample().code(), absl::StatusCode::kNotFound);
  const auto health = client_->CheckHealth(absl::StrCat("model/", tiny::kFlow), Soon());
  EXPECT_TRUE(!health.ok() || *health != HealthState::kServing);
  ASSERT_TRUE(Load(tiny::kFlow).ok());
  EXPECT_TRUE(Sample().ok());
  EXPECT_EQ(Load(tiny::kFlow).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Load("nobody").code(), absl::StatusCode::kNotFound);
  const auto events = watcher.Await("tiny_flow: loaded (rpc)");
  EXPECT_THAT(events, Contains("tiny_flow: unloaded (rpc)"));
  EXPECT_THAT(events, Contains("tiny_flow: loaded (rpc)"));
  const std::string page = daemon_->Get("/metrics").body;
  EXPECT_THAT(page,
              HasSubstr("hyperserve_model_changes_total{result=\"unloaded\",source=\"rpc\"} 1"));
  EXPECT_THAT(daemon_->Log(), HasSubstr("event=model_unloaded model=tiny_flow source=rpc"));
  watcher.EndWithTheNext();
  ASSERT_TRUE(Unload(tiny::kFlow).ok());
}

TEST_F(Models, TheFolderIsFollowed) {
  Watcher watcher(*daemon_);
  watcher.Await("tiny_flow: served ()");
  EXPECT_EQ(Sample("newcomer").code(), absl::StatusCode::kNotFound);
  WriteFlow("newcomer", 1);
  EXPECT_THAT(watcher.Await("newcomer: loaded (folder)"), Contains("newcomer: loaded (folder)"));
  EXPECT_TRUE(Sample("newcomer").ok());
  // A changed model replaces the old one; a broken one changes nothing.
  const std::string before = Digest("newcomer");
  WriteFlow("newcomer", 0.5);
  for (int i = 0; i < 400 && Digest("newcomer") == before; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  const std::string after = Digest("newcomer");
  EXPECT_NE(after, before);
  EXPECT_TRUE(Sample("newcomer").ok());
  ASSERT_TRUE(
      WriteFileAtomically(repository_.path() + "/newcomer/model.json", "{\"format\": 1}").ok());
  EXPECT_THAT(watcher.Await("newcomer: model_refused (folder)"),
              Contains("newcomer: model_refused (folder)"));
  EXPECT_EQ(Digest("newcomer"), after);
  EXPECT_TRUE(Sample("newcomer").ok());
  watcher.EndWithTheNext();
  ASSERT_TRUE(Unload("newcomer").ok());
}

TEST_F(Models, CorrectionsOfAnotherBaseAreSetAside) {
  v1::SampleRequest hypersolved = tiny::SampleRows(1, "hyper_heun:2");
  ASSERT_TRUE(client_->Sample(hypersolved, Soon()).ok());
  const std::string before = Digest(tiny::kFlow);
  WriteFlow(tiny::kFlow, 0.5);
  for (int i = 0; i < 400 && Digest(tiny::kFlow) == before; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_NE(Digest(tiny::kFlow), before);
  EXPECT_TRUE(Sample().ok());
  EXPECT_FALSE(client_->Sample(hypersolved, Soon()).ok());
  EXPECT_THAT(daemon_->Get("/readyz").body, HasSubstr("tiny_flow"));
}

TEST_F(Models, CommandsLoadUnloadAndWatch) {
  EXPECT_EQ(RunClient(*daemon_, {"unload", tiny::kFlow}).exit_code, 0);
  const Finished watched = RunClient(*daemon_, {"watch", "--timeout=1s", "--format=json"});
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr(R"("model":"tiny_classifier","event":"served")"));
  EXPECT_THAT(watched.out, Not(HasSubstr(tiny::kFlow)));
  const Finished loaded = RunClient(*daemon_, {"load", tiny::kFlow});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.err;
  EXPECT_THAT(loaded.out, HasSubstr("tiny_flow is served"));
  const Finished table = RunClient(*daemon_, {"watch", "--timeout=1s"});
  EXPECT_THAT(table.out, HasSubstr("tiny_flow heun generation 1: served\n"));
  const Finished again = RunClient(*daemon_, {"load", tiny::kFlow});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("ALREADY_EXISTS"));
}

}  // namespace
}  // namespace hyperserve
