#include "client/command/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/flag.h"
#include "client/command/flags.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int64_t failed_rows = 0;
absl::Status failure;

absl::StatusOr<int64_t> RunFake(const Arguments&) {
  if (!failure.ok()) return failure;
  return failed_rows;
}

constexpr Command kCommands[] = {{.name = "fake",
                                  .arguments = "INPUT",
                                  .summary = "does nothing",
                                  .flags = "rows logits",
                                  .arguments_min = 1,
                                  .arguments_max = 2,
                                  .run = RunFake}};

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& words) {
  return ParseArguments(kCommands[0], words);
}

TEST(ParseArguments, SetsFlagsInAllSpellings) {
  const auto arguments = Parse({"a", "--rows=7", "--logits", "--timeout", "250ms", "b"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_THAT(*arguments, ElementsAre("a", "b"));
  EXPECT_EQ(absl::GetFlag(FLAGS_rows), 7);
  EXPECT_TRUE(absl::GetFlag(FLAGS_logits));
  EXPECT_EQ(absl::GetFlag(FLAGS_timeout), absl::Milliseconds(250));
  ASSERT_TRUE(Parse({"--nologits", "--rows", "8", "--", "--odd-name"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_logits));
  EXPECT_EQ(absl::GetFlag(FLAGS_rows), 8);
  EXPECT_THAT(*Parse({"--", "--odd-name"}), ElementsAre("--odd-name"));
}

TEST(ParseArguments, TellsMistakes) {
  const auto expect = [](const std::vector<std::string>& words, const std::string& said) {
    const auto arguments = Parse(words);
    EXPECT_TRUE(IsUsageError(arguments.status())) << said;
    EXPECT_THAT(std::string(arguments.status().message()), HasSubstr(said));
  };
  expect({"a", "--seed=1"}, "--seed is not an option of fake");
  expect({"a", "--norows"}, "--norows is not an option of fake");
  expect({"a", "--nothing"}, "--nothing is not an option of fake");
  expect({"a", "--nologits=true"}, "takes no value");
  expect({"a", "--rows"}, "--rows needs a value");
  expect({"a", "--rows=many"}, "many");
  expect({}, "fake takes INPUT; 0 given");
  expect({"a", "b", "c"}, "3 given");
}

TEST(RunProgram, ExitCodes) {
  const auto run = [](const std::vector<std::string>& words) {
    return RunProgram(kCommands, words);
  };
  failure = absl::OkStatus();
  failed_rows = 0;
  EXPECT_EQ(run({"fake", "a"}), 0);
  failed_rows = 2;
  EXPECT_EQ(run({"fake", "a"}), 3);
  failure = absl::InvalidArgumentError("the server says so");
  EXPECT_EQ(run({"fake", "a"}), 1);
  failure = UsageError("a slip");
  EXPECT_EQ(run({"fake", "a"}), 2);
  EXPECT_EQ(run({"fake"}), 2);
  EXPECT_EQ(run({"other"}), 2);
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"fake", "--help"}), 0);
}

TEST(Usage, ShowsTheCommandsOwnOptions) {
  EXPECT_THAT(Usage(kCommands), HasSubstr("does nothing"));
  const std::string help = Usage(kCommands[0]);
  EXPECT_THAT(help, HasSubstr("--rows"));
  EXPECT_THAT(help, HasSubstr("--timeout"));
  EXPECT_THAT(help, Not(HasSubstr("--seed")));
}

TEST(ExplainFailure, NamesCodeWordsAndAWayOut) {
  const std::string text = ExplainFailure(absl::ResourceExhaustedError("queue full"));
  EXPECT_THAT(text, HasSubstr("RESOURCE_EXHAUSTED: queue full\nwhat to do: "));
}

}  // namespace
}  // namespace hyperserve
