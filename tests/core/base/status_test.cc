#include "core/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace hyperserve {
namespace {

absl::Status Fails() { return absl::NotFoundError("no file"); }

absl::Status PassesOn(const absl::Status& status, bool& reached_end) {
  HS_RETURN_IF_ERROR(status);
  reached_end = true;
  return absl::OkStatus();
}

absl::StatusOr<int> LengthOf(absl::StatusOr<std::unique_ptr<std::string>> text) {
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<std::string> owned, std::move(text));
  return static_cast<int>(owned->size());
}

TEST(ReturnIfError, ReturnsFailuresOnly) {
  bool reached_end = false;
  EXPECT_EQ(PassesOn(Fails(), reached_end), Fails());
  EXPECT_FALSE(reached_end);
  EXPECT_TRUE(PassesOn(absl::OkStatus(), reached_end).ok());
  EXPECT_TRUE(reached_end);
}

TEST(AssignOrReturn, MovesTheValueOut) {
  EXPECT_EQ(*LengthOf(std::make_unique<std::string>("four")), 4);
  EXPECT_EQ(LengthOf(Fails()).status(), Fails());
}

TEST(Annotate, PutsTheContextBeforeTheMessageAndKeepsTheCode) {
  const absl::Status status = Annotate(Annotate(Fails(), "weights"), "model 'm'");
  EXPECT_EQ(status, absl::NotFoundError("model 'm': weights: no file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "context").ok());
}

TEST(CatchExceptions, TurnsThemIntoInternal) {
  const absl::Status status = CatchExceptions(
      "loading", []() -> absl::Status { throw std::runtime_error("out of memory"); });
  EXPECT_EQ(status, absl::InternalError("loading: out of memory"));
}

TEST(CatchExceptions, PassesResultsThrough) {
  EXPECT_EQ(*CatchExceptions("adding", [] { return absl::StatusOr<int>(3); }), 3);
  EXPECT_EQ(CatchExceptions("failing", [] { return Fails(); }), Fails());
}

}  // namespace
}  // namespace hyperserve
