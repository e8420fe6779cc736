// The training loop on a small problem: its schedule, and what it does when it is killed, when
// numbers are not finite and when nothing gets better.
#include "training/optimise/optimise.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/io/file.h"
#include "core/model/net/net.h"
#include "training/data/random.h"
#include "training/data/recipe.pb.h"
#include "training/fit/parameters.h"
#include "training/optimise/checkpoints.h"
#include "training/optimise/curve.h"
#include "training/optimise/schedule.h"

namespace hyperserve {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kIterations = 230;

// Fits a point of the plane to noisy sights of (3, -1). A new object begins anew.
class Problem {
 public:
  Problem() {
    point_.requires_grad_(true);
    fit = {.what = "problem",
           .tensors = {{"point", point_}},
           .loss = [this](int iteration) { return Loss(iteration); },
           .held_out = [this]() -> absl::StatusOr<double> {
             const at::NoGradGuard no_grad;
             return (point_ - Target()).norm().item<double>();
           },
           .check_every = 20,
           .save = [this](TensorMap& state) { SaveStream(stream_, state); },
           .load = [this](const TensorMap& state) { LoadStream(state, stream_); },
           .checkpoint = "problem"};
    fit.optimiser.set_rate(0.05);
    fit.optimiser.set_final_rate(0.001);
    fit.optimiser.set_iterations(kIterations);
    fit.optimiser.set_warm_up(10);
  }
  // What the loss of an iteration becomes.
  std::function<absl::StatusOr<at::Tensor>(int iteration, at::Tensor loss)> change =
      [](int, at::Tensor loss) { return loss; };
  Optimisation fit;

 private:
  static at::Tensor Target() { return at::tensor({3.0f, -1.0f}); }
  absl::StatusOr<at::Tensor> Loss(int iteration) {
    const at::Tensor noise = at::tensor(
        {static_cast<float>(stream_.Uniform() - 0.5), static_cast<float>(stream_.Uniform() - 0.5)});
    return change(iteration, (point_ - Target() - noise).square().sum());
  }
  at::Tensor point_ = at::zeros({2});
  RandomStream stream_{7, RandomPurpose::kBatches};
};

std::string TextOf(const Optimised& fitted) {
  return CurvesText({{.fit = "", .points = fitted.curve}});
}

class OptimiseTest : public ::testing::Test {
 protected:
  OptimiseTest() { fs::remove_all(parent_); }
  ~OptimiseTest() override { fs::remove_all(parent_); }

  Checkpoints::Options Keeping(bool resume) const {
    return {.folder = folder_,
            .every = std::chrono::seconds(0),
            .resume = resume,
            .identity = {{"recipe", "a"}, {"base", "b"}}};
  }
  // A run that is "killed" in an iteration; what was saved before stays.
  void KilledRun(int at_iteration, bool resume = false) const {
    Checkpoints checkpoints(Keeping(resume));
    Problem problem;
    problem.fit.checkpoints = &checkpoints;
    problem.change = [&](int iteration, at::Tensor loss) -> absl::StatusOr<at::Tensor> {
      if (iteration == at_iteration) return absl::AbortedError("killed");
      return loss;
    };
    ASSERT_TRUE(absl::IsAborted(Optimise(problem.fit).status()));
  }
  absl::StatusOr<Optimised> ResumedRun(const Checkpoints::Options& options) const {
    Checkpoints checkpoints(options);
    Problem problem;
    problem.fit.checkpoints = &checkpoints;
    return Optimise(problem.fit);
  }

  const std::string parent_ = ::testing::TempDir() + "optimise_test/.training";
  const std::string folder_ = parent_ + "/run";
};

void ExpectSame(const Optimised& one, const Optimised& other) {
  EXPECT_TRUE(one.tensors.at("point").equal(other.tensors.at("point")));
  EXPECT_EQ(TextOf(one), TextOf(other));
  EXPECT_EQ(one.best_iteration, other.best_iteration);
  EXPECT_EQ(one.error, other.error);
  EXPECT_EQ(one.start_error, other.start_error);
}

TEST_F(OptimiseTest, AResumedRunIsTheRunThatWasNeverKilled) {
  Problem undisturbed;
  const Optimised whole = Optimise(undisturbed.fit).value();
  EXPECT_LT(whole.error, 0.1 * whole.start_error);
  EXPECT_EQ(whole.Remark(), "");
  for (const int killed : {1, 51, 137, kIterations - 1}) {
    KilledRun(killed);
    const auto resumed = ResumedRun(Keeping(true));
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    ExpectSame(*resumed, whole);
    fs::remove_all(folder_);
  }
}

TEST_F(OptimiseTest, ARunMayBeKilledAgainAndAgain) {
  Problem undisturbed;
  const Optimised whole = Optimise(undisturbed.fit).value();
  KilledRun(60);
  KilledRun(120, /*resume=*/true);
  KilledRun(229, /*resume=*/true);
  ExpectSame(ResumedRun(Keeping(true)).value(), whole);
  ExpectSame(ResumedRun(Keeping(true)).value(), whole);  // it was done: nothing is left to do
}

TEST_F(OptimiseTest, WithoutACheckpointAResumedRunBeginsAtTheStart) {
  Problem undisturbed;
  ExpectSame(ResumedRun(Keeping(true)).value(), Optimise(undisturbed.fit).value());
}

TEST_F(OptimiseTest, ACheckpointOfAnotherRunIsRefused) {
  KilledRun(137);
  Checkpoints::Options other = Keeping(true);
  other.identity["base"] = "another";
  EXPECT_THAT(std::string(ResumedRun(other).status().message()),
              AllOf(HasSubstr("is of another base than this run"), HasSubstr("--resume")));
  Checkpoints checkpoints(Keeping(true));
  Problem wider;
  wider.fit.tensors = {{"point", at::zeros({3}).requires_grad_(true)}};
  wider.fit.held_out = nullptr;
  wider.fit.checkpoints = &checkpoints;
  EXPECT_THAT(std::string(Optimise(wider.fit).status().message()),
              HasSubstr("the checkpoint does not fit this run"));
}

TEST_F(OptimiseTest, ADamagedCheckpointIsRefusedWithItsName) {
  KilledRun(137);
  const std::string path = folder_ + "/problem.safetensors";
  const std::string bytes = ReadFile(path, 1 << 20).value();
  ASSERT_TRUE(WriteFileAtomically(path, bytes.substr(0, bytes.size() - 9)).ok());
  EXPECT_THAT(std::string(ResumedRun(Keeping(true)).status().message()), HasSubstr(path));
}

TEST_F(OptimiseTest, AByteThatChangedInACheckpointIsFound) {
  KilledRun(137);
  const std::string path = folder_ + "/problem.safetensors";
  std::string bytes = ReadFile(path, 1 << 20).value();
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_THAT(std::string(ResumedRun(Keeping(true)).status().message()),
              AllOf(HasSubstr(path), HasSubstr("is damaged"), HasSubstr("leave --resume out")));
}

TEST_F(OptimiseTest, CountsThatNoFitHasAreRefused) {
  KilledRun(137);
  Checkpoints checkpoints(Keeping(true));
  TensorMap state = checkpoints.Load("problem").value().value();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor numbers = state.at("numbers");
  for (const auto& [place, number] :
       {std::pair(0, kNan), {0, 1e300}, {0, -1.0}, {4, kNan}, {4, -1.0}}) {
    state.at("numbers") = numbers.clone();
    state.at("numbers")[place] = number;
    ASSERT_TRUE(checkpoints.Save("problem", state));
    Problem problem;
    problem.fit.checkpoints = &checkpoints;
    EXPECT_THAT(
        std::string(Optimise(problem.fit).status().message()),
        AllOf(HasSubstr(absl::StrCat("numbers[", place, "] is ")), HasSubstr("from 0 to ")));
  }
}

TEST_F(OptimiseTest, WhatStandsInACheckpointsPlaceAndCannotBeReadIsRefused) {
  const std::string path = folder_ + "/problem.safetensors";
  fs::create_directories(folder_);
  fs::create_symlink(path, path);  // leads to itself
  EXPECT_THAT(std::string(ResumedRun(Keeping(true)).status().message()), HasSubstr(path));
}

TEST_F(OptimiseTest, ACheckpointThatCannotBeWrittenIsTold) {
  fs::create_directories(fs::path(parent_).parent_path());
  ASSERT_TRUE(WriteFileAtomically(parent_, "a file where the folder would be").ok());
  Checkpoints checkpoints(Keeping(false));
  EXPECT_FALSE(checkpoints.Save("problem", {{"x", at::zeros({2})}}));
}

TEST_F(OptimiseTest, ARunThatBeginsAnewReplacesWhatAnotherLeft) {
  KilledRun(137);
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/other.safetensors", "of the killed run").ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/problem.safetensors.tmp-1", "half a file").ok());
  KilledRun(137);
  EXPECT_TRUE(fs::exists(folder_ + "/problem.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ + "/other.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ + "/problem.safetensors.tmp-1"));
}

TEST_F(OptimiseTest, ARunThatIsDoneLeavesNothing) {
  KilledRun(137);
  Checkpoints checkpoints(Keeping(true));
  checkpoints.Remove();
  EXPECT_FALSE(fs::exists(parent_));
}

TEST_F(OptimiseTest, AShortRunWritesNothing) {
  Checkpoints::Options options = Keeping(false);
  options.every = std::chrono::hours(1);
  ASSERT_TRUE(ResumedRun(options).ok());
  EXPECT_FALSE(fs::exists(parent_));
}

TEST_F(OptimiseTest, TwoProcessesDoNotShareARun) {
  KilledRun(137);
  Checkpoints one(Keeping(true));
  ASSERT_TRUE(one.Load("problem").ok());
  EXPECT_THAT(std::string(ResumedRun(Keeping(true)).status().message()),
              HasSubstr("another process is at the same run"));
}

TEST_F(OptimiseTest, AfterNumbersThatAreNotFiniteItGoesOnFromTheLastStateAtHalfTheRate) {
  Problem problem;
  bool fell = false;
  problem.change = [&](int iteration, at::Tensor loss) {
    if (iteration != 137 || fell) return loss;
    fell = true;
    return loss * std::numeric_limits<float>::quiet_NaN();
  };
  const auto fitted = Optimise(problem.fit);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->steps_back, 1);
  EXPECT_EQ(fitted->Remark(), "stepped back 1 times from numbers that were not finite");
  EXPECT_LT(fitted->error, 0.1 * fitted->start_error);
  for (const CurvePoint& point : fitted->curve) {
    if (point.iterations == 0) continue;
    EXPECT_TRUE(std::isfinite(point.loss)) << point.iterations;
    const double factor = point.iterations > 100 ? kRateAfterStepBack : 1;
    EXPECT_DOUBLE_EQ(point.rate,
                     factor * LearningRate(problem.fit.optimiser, point.iterations - 1));
  }
}

TEST_F(OptimiseTest, AGradientThatIsNotFiniteCountsToo) {
  Problem problem;
  bool fell = false;
  problem.change = [&](int iteration, at::Tensor loss) {
    if (iteration != 137 || fell) return loss;
    fell = true;
    return loss + (loss - loss.detach()).sqrt();  // 0, whose derivative is infinite
  };
  const auto fitted = Optimise(problem.fit);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->steps_back, 1);
}

TEST_F(OptimiseTest, ItGivesUpAfterSomeStepsBack) {
  Problem problem;
  int tries = 0;
  problem.change = [&](int iteration, at::Tensor loss) {
    if (iteration != 137) return loss;
    ++tries;
    return loss * std::numeric_limits<float>::infinity();
  };
  const absl::Status status = Optimise(problem.fit).status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("after 8 steps back"), HasSubstr("smaller rate")));
  EXPECT_EQ(tries, kStepsBackMost + 1);
}

TEST_F(OptimiseTest, ALossThatIsNotFiniteAtTheStartEndsItAtOnce) {
  Problem problem;
  problem.change = [](int, at::Tensor loss) {
    return loss * std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_THAT(std::string(Optimise(problem.fit).status().message()),
              HasSubstr("not finite before the first step"));
}

TEST_F(OptimiseTest, ItStopsOnAPlateauAndKeepsTheBest) {
  for (const double offset : {0.0, -14.0}) {  // a negative log-likelihood may be below zero
    Problem problem;
    problem.fit.optimiser.set_iterations(1000000);
    problem.fit.optimiser.set_patience(100);
    int checks = 0;
    problem.fit.held_out = [&]() -> absl::StatusOr<double> {
      ++checks;
      // It falls for five checks, then only by less than counts.
      return offset + (checks <= 6 ? 10.0 - checks : 4.0 - 1e-6 * checks);
    };
    const Optimised fitted = Optimise(problem.fit).value();
    EXPECT_EQ(fitted.iterations, 5 * 20 + 100) << offset;
    EXPECT_EQ(fitted.best_iteration, fitted.iterations) << offset;
    EXPECT_EQ(fitted.Remark(), "stopped at a plateau, iteration 200 of 1000000");
  }
}

TEST_F(OptimiseTest, PatienceEndsAFitAtACheckOnly) {
  Problem problem;
  problem.fit.optimiser.set_iterations(1000000);
  problem.fit.optimiser.set_patience(1);  // less than the 20 iterations between two checks
  int checks = 0;
  problem.fit.held_out = [&]() -> absl::StatusOr<double> { return checks++ == 1 ? 1.0 : 2.0; };
  const Optimised fitted = Optimise(problem.fit).value();
  EXPECT_EQ(fitted.iterations, 2 * 20);
  EXPECT_EQ(fitted.best_iteration, 20);
}

// Each iteration of the problem takes a second.
void CountSeconds(Problem& problem, double& now) {
  problem.fit.clock = [&now] { return now; };
  problem.change = [&now](int, at::Tensor loss) {
    ++now;
    return loss;
  };
}

TEST_F(OptimiseTest, ItStopsWhenItsTimeIsOverAndKeepsTheBest) {
  Problem problem;
  double now = 1000;
  CountSeconds(problem, now);
  problem.fit.optimiser.set_iterations(1000000);
  problem.fit.optimiser.set_seconds(70.5);
  const Optimised fitted = Optimise(problem.fit).value();
  EXPECT_EQ(fitted.iterations, 71);
  EXPECT_EQ(fitted.Remark(), "stopped after 70.5 seconds, iteration 71 of 1000000");
  EXPECT_LT(fitted.error, 0.7 * fitted.start_error);
  // The last tensors were measured although no check was due, and had a small rate.
  EXPECT_EQ(fitted.curve.back().iterations, 71);
  EXPECT_FALSE(std::isnan(fitted.curve.back().error));
  EXPECT_NEAR(fitted.curve.back().rate, 0.001, 1e-4);
  EXPECT_GT(fitted.curve[2].rate, 0.03);  // at iteration 20
}

TEST_F(OptimiseTest, ARunThatGoesOnHasTheTimeThatIsLeft) {
  const auto run = [&](int killed_at) {
    Checkpoints checkpoints(Keeping(true));
    Problem problem;
    double now = killed_at > 0 ? 1000 : 5;
    CountSeconds(problem, now);
    const auto counts = problem.change;
    problem.change = [&](int iteration, at::Tensor loss) -> absl::StatusOr<at::Tensor> {
      if (iteration == killed_at) return absl::AbortedError("killed");
      return counts(iteration, loss);
    };
    problem.fit.optimiser.set_seconds(120);
    problem.fit.checkpoints = &checkpoints;
    return Optimise(problem.fit);
  };
  ASSERT_TRUE(absl::IsAborted(run(110).status()));
  EXPECT_EQ(run(-1)->iterations, 120);  // 100 of them before the last checkpoint
  const Optimised done = run(-1).value();
  EXPECT_EQ(done.iterations, 120) << "a fit that its time ended is not fitted again";
  EXPECT_EQ(done.Remark(), "stopped after 120 seconds, iteration 120 of 230");
}

TEST_F(OptimiseTest, WithoutPatienceItRunsAllIterations) {
  Problem problem;
  problem.fit.held_out = []() -> absl::StatusOr<double> { return 1.0; };
  const Optimised fitted = Optimise(problem.fit).value();
  EXPECT_EQ(fitted.iterations, kIterations);
  EXPECT_EQ(fitted.best_iteration, 0);
}

TEST_F(OptimiseTest, WithoutHeldOutRowsTheLastTensorsAreTheResult) {
  Problem problem;
  problem.fit.held_out = nullptr;
  const Optimised fitted = Optimise(problem.fit).value();
  EXPECT_EQ(fitted.best_iteration, kIterations);
  EXPECT_TRUE(fitted.tensors.at("point").equal(problem.fit.tensors.at("point")));
  EXPECT_TRUE(std::isnan(fitted.error));
}

}  // namespace
}  // namespace hyperserve
