#include "client/frame/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "client/frame/failure.h"
#include "client/frame/flags.h"

namespace hyperserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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
  expect({"a", "--rows=many"}, "--rows=many is not a whole number");
  expect({"a", "--timeout=60"}, "--timeout=60 is not a time with its unit, as in 500ms");
  expect({"a", "-rows=7"}, "'-rows=7': options begin with two dashes, as in --rows=7");
  expect({}, "fake takes INPUT; 0 given");
  expect({"a", "b", "c"}, "3 given");
}

struct OutOfBounds {
  const char *name, *value, *said;
};

TEST(ParseArguments, TellsWhatIsOutOfBounds) {
  const char* const time = " is not within [1ms, 24h]: longest time of one call";
  const char* const port = " is no port from 1 to 65535; write HOST:PORT, as in 127.0.0.1:8500";
  const std::vector<OutOfBounds> cases = {
      {"timeout", "0", time},
      {"timeout", "-5s", time},
      {"timeout", "inf", time},
      {"timeout", "100h", time},
      {"duration", "0", " is not within [1ms, 24h]"},
      {"address", "foo bar", ": there is no port; write HOST:PORT"},
      {"address", "", ": there is no port"},
      {"address", "http://a:1", ": 'http://a' is no host"},
      {"address", "::1:8500", ": '::1' is no host"},
      {"address", "a:70000", port},
      {"address", "a:0", port},
      {"address", "a:", port},
      {"admin_address", ":8501", ": '' is no host"},
      {"limit", "-1", " is below 0, the least: use only the first rows of the input; 0: all"},
      {"generation", "-1", " is below 0"},
      {"parent_generation", "-2", " is below -1"},
      {"max_steps", "-1", " is below 0"},
      {"batch", "0", " is below 1"},
      {"concurrency", "0", " is below 1"},
      {"top_k", "-1", " is below 0"},
      {"rows", "0", " is below 1"},
      {"count", "-1", " is below 0"}};
  Command command = kCommands[0];
  command.arguments_min = 0;
  for (const OutOfBounds& one : cases) {
    const absl::FlagSaver saver;
    command.flags = one.name;
    const std::string word = absl::StrCat("--", one.name, "=", one.value);
    const auto arguments = ParseArguments(command, std::vector<std::string>{word});
    EXPECT_TRUE(IsUsageError(arguments.status())) << word;
    EXPECT_THAT(std::string(arguments.status().message()),
                StartsWith(absl::StrCat("--", one.name, "=")));
    EXPECT_THAT(std::string(arguments.status().message()), HasSubstr(one.said)) << word;
  }
}

TEST(ParseArguments, TakesAddressesOfEveryKind) {
  for (const char* address : {"127.0.0.1:8500", "localhost:1", "[::1]:65535", "[fe80::1%eth0]:80",
                              "hyper-serve_1.svc:80"}) {
    const absl::FlagSaver saver;
    const auto arguments = Parse({"a", absl::StrCat("--address=", address)});
    EXPECT_TRUE(arguments.ok()) << arguments.status();
  }
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
  EXPECT_THAT(ExplainFailure(absl::UnavailableError("no connection")),
              HasSubstr("--address (publish, rollback, load, unload, watch: --admin_address)"));
  const absl::Status file = FileError(absl::InvalidArgumentError("a.csv: line 2 is not numbers"));
  EXPECT_EQ(ExplainFailure(file),
            "INVALID_ARGUMENT: a.csv: line 2 is not numbers\n"
            "what to do: correct the file or name another one\n");
  EXPECT_EQ(ExplainFailure(WithWayOut(absl::InternalError("it broke"), "mend it")),
            "INTERNAL: it broke\nwhat to do: mend it\n");
}

}  // namespace
}  // namespace hyperserve
