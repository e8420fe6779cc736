// A registry on a folder of its own, with calls that wait for their outcome.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/device_runtime.h"
#include "core/model/repository/generation_files.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "server/registry/gate_decision.h"
#include "server/registry/registry.h"
#include "server/registry/registry_options.h"
#include "server/registry/served_model.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {

class RegistryFixture : public ::testing::Test {
 protected:
  // One model, "tiny_flow", without hypersolvers.
  void SetUp() override { ASSERT_TRUE(fixture::WriteModel(flow_, repository()).ok()); }

  const std::string& repository() const { return temporary_.path(); }
  std::string HeunFolder() const {
    return HypersolverFolder(repository() + "/tiny_flow", {.method = Method::kHeun});
  }

  // Fails the test if the registry does not open. The test sets only the options that it tests.
  void Open(RegistryOptions options = {}) {
    registry_.reset();
    options.repository = repository();
    options.poll_seconds = poll_seconds_;
    options.gate_margin = 0.02;
    options.runtime = runtime_.get();
    if (options.publish_queue_limit == 0) options.publish_queue_limit = 8;
    if (options.examination_macs_max == 0) options.examination_macs_max = 1e18;
    if (options.examination_seconds_max == 0) options.examination_seconds_max = 1e6;
    auto opened = Registry::Open(std::move(options), [this](const Registry::Event& event) {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(event);
    });
    ASSERT_TRUE(opened.ok()) << opened.status();
    registry_ = *std::move(opened);
  }

  // A correction of tiny_flow; model_fixture.h explains `scale`.
  GenerationFiles Scaled(double scale) const {
    fixture::CorrectionOptions options = fixture::DefaultCorrection(flow_);
    options.scale = scale;
    return fixture::TinyCorrection(flow_, options);
  }

  absl::StatusOr<PublishOutcome> Publish(GenerationFiles files,
                                         std::optional<int64_t> parent = std::nullopt,
                                         const std::string& method = "heun",
                                         const std::string& model = "tiny_flow") {
    return Publish(PublishAsk{
        .model = model, .method = method, .files = std::move(files), .parent_generation = parent});
  }
  absl::StatusOr<PublishOutcome> Publish(PublishAsk ask) {
    return Wait([&](auto done) { registry_->Publish(std::move(ask), {}, std::move(done)); });
  }
  absl::StatusOr<PublishOutcome> Rollback(int64_t generation = 0,
                                          const std::string& method = "heun",
                                          const std::string& model = "tiny_flow") {
    return Wait(
        [&](auto done) { registry_->Rollback(model, method, generation, {}, std::move(done)); });
  }

  // The state of tiny_flow's heun correction as callers see it; empty: there is none.
  CorrectionState State() const {
    const auto pin = registry_->Pin("tiny_flow");
    const CorrectionState* state = (*pin)->Find({.method = Method::kHeun});
    return state == nullptr ? CorrectionState() : *state;
  }
  int64_t Active() const { return State().active ? State().active->number : 0; }
  int64_t Previous() const { return State().previous ? State().previous->number : 0; }

  std::vector<Registry::Event> Events(Registry::Event::Kind kind) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Registry::Event> chosen;
    for (const Registry::Event& event : events_) {
      if (event.kind == kind) chosen.push_back(event);
    }
    return chosen;
  }

  static absl::StatusOr<PublishOutcome> Wait(
      const std::function<void(std::function<void(absl::StatusOr<PublishOutcome>)>)>& call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<PublishOutcome>>>();
    std::future<absl::StatusOr<PublishOutcome>> result = promise->get_future();
    call([promise](absl::StatusOr<PublishOutcome> outcome) {
      promise->set_value(std::move(outcome));
    });
    return result.get();
  }

  const TemporaryFolder temporary_;
  const fixture::LinearModel flow_ = fixture::TinyFlow();
  double poll_seconds_ = 0;
  mutable std::mutex mutex_;
  std::vector<Registry::Event> events_;  // guarded by mutex_
  const std::unique_ptr<DeviceRuntime> runtime_ = MakeDeviceRuntime("cpu").value();
  std::unique_ptr<Registry> registry_;
};

}  // namespace hyperserve
