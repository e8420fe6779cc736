// The three programs without a daemon: their pages of help, and their messages for wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/file.h"
#include "tests/e2e/process.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;
using testing::Not;

void ExpectOurHelp(const std::string& program, const std::vector<std::string>& said) {
  SCOPED_TRACE(program);
  const Finished help = RunToEnd({program, "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  for (const std::string& words : said) EXPECT_THAT(help.out, HasSubstr(words));
  for (const char* noise :
       {"flagfile,", "undefok", "helpfull", "helpshort", "gflags", "No flags"}) {
    EXPECT_THAT(help.out, Not(HasSubstr(noise)));
  }
}

void ExpectUsageError(const std::vector<std::string>& words, const std::string& said) {
  SCOPED_TRACE(testing::PrintToString(words));
  const Finished finished = RunToEnd(words);
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_EQ(finished.out, "");
  EXPECT_THAT(finished.err, HasSubstr(said));
}

TEST(Usage, HelpShowsOurOwnOptions) {
  ExpectOurHelp(HYPERSERVE_BINARY, {"hyperserve --check FOLDER", "--models=models", "--read_only"});
  ExpectOurHelp(HYPERSERVE_CLIENT_BINARY, {"classify  INPUT", "rollback", "Exit codes"});
  ExpectOurHelp(HYPERSERVE_TRAIN_BINARY, {"hyperserve-train hypersolver", "COMMAND --help"});
  const std::string help = RunToEnd({HYPERSERVE_TRAIN_BINARY, "hypersolver", "--help"}).out;
  for (const char* part : {"hyperserve-train hypersolver --recipe=FILE", "--recipe ", "--threads",
                           "as the recipe says (default: 0)"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  EXPECT_THAT(help, testing::Not(HasSubstr("--picture")));
  ExpectUsageError({HYPERSERVE_TRAIN_BINARY, "model", "--recipe=a", "--models=b", "--picture=c"},
                   "model takes no --picture");
}

TEST(Usage, VersionsAreOne) {
  const std::string version = RunToEnd({HYPERSERVE_BINARY, "--version"}).out;
  EXPECT_THAT(version, testing::MatchesRegex("hyperserve [0-9.]+ [(]commit [0-9a-z-]+[)]\n"));
  const std::string after_name = version.substr(version.find(' '));
  EXPECT_EQ(RunToEnd({HYPERSERVE_CLIENT_BINARY, "--version"}).out,
            "hyperserve-client" + after_name);
  EXPECT_EQ(RunToEnd({HYPERSERVE_TRAIN_BINARY, "--version"}).out, "hyperserve-train" + after_name);
}

TEST(Usage, WhatNeedsAModelSaysSo) {
  for (const char* command : {"publish", "rollback"}) {
    EXPECT_THAT(RunToEnd({HYPERSERVE_CLIENT_BINARY, command, "--help"}).out,
                HasSubstr("name of the model; publish and rollback need it"));
  }
  ExpectUsageError({HYPERSERVE_CLIENT_BINARY, "publish", "a"}, "publish takes --model=NAME");
  ExpectUsageError({HYPERSERVE_CLIENT_BINARY, "rollback", "--method=euler"},
                   "rollback takes --model=NAME");
}

TEST(Usage, CheckOfNothingDoesNotServe) {
  ExpectUsageError({HYPERSERVE_BINARY, "--check="}, "--check= names no folder");
  ExpectUsageError({HYPERSERVE_BINARY, "--check", ""}, "write --check=FOLDER");
}

TEST(Usage, UnknownOptionsAreAnsweredWithTheKnownOnes) {
  ExpectUsageError({HYPERSERVE_BINARY, "--addres=127.0.0.1:1"},
                   "hyperserve: no option --addres; there are --address, --admin_address, ");
  ExpectUsageError({HYPERSERVE_BINARY, "--models", "x", "--nonsense"}, "no option --nonsense");
  ExpectUsageError({HYPERSERVE_CLIENT_BINARY, "sample", "--modle=x"},
                   "--modle is not an option of sample; it takes --model, --plan, ");
}

TEST(Usage, ValuesThatDoNotFitAreToldInOurWords) {
  for (const auto& [option, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"--solvers=1.5", "a whole number below 2^31"},
           {"--solvers=99999999999", "a whole number below 2^31"},
           {"--queue_rows_max=x", "a whole number below 2^63"},
           {"--drain_seconds=soon", "a number"},
           {"--read_only=maybe", "true or false"}}) {
    ExpectUsageError({HYPERSERVE_BINARY, option}, "hyperserve: " + option + " is not " + wanted);
  }
  ExpectUsageError({HYPERSERVE_BINARY, "--solvers", "two"}, "--solvers=two is not a whole number");
  ExpectUsageError({HYPERSERVE_BINARY, "--models="}, "--models= names no folder");
}

TEST(Usage, SlipsOfTheTrainer) {
  const auto expect = [](std::vector<std::string> words, const std::string& said) {
    words.insert(words.begin(), HYPERSERVE_TRAIN_BINARY);
    ExpectUsageError(words, said);
  };
  expect({}, "a command is needed");
  expect({"modle"}, "no command 'modle': there are model");
  expect({"model", "--bogus=1"},
         "no option --bogus; there are --allow_code, --checkpoint_every, --curve, --data, ");
  expect({"model", "rings"}, "model takes flags only; 1 given");
  expect({"model", "--models=a"}, "model takes --recipe=FILE");
  expect({"calibrate", "--recipe=a"}, "calibrate takes --models=FOLDER");
  const std::vector<std::string> model = {"model", "--recipe=a", "--models=b"};
  const auto with = [](std::vector<std::string> words, const std::string& more) {
    words.push_back(more);
    return words;
  };
  expect(with(model, "--threads=0"), "--threads=0 is below 1");
  expect(with(model, "--iterations=-1"), "--iterations=-1 is below 0");
  expect({"publish", "a"}, "no command 'publish'");  // hyperserve-client publishes
}

constexpr std::string_view kSmallRecipe = R"({
  "format": 1, "name": "small", "seed": 4, "data": {"density": "rings"},
  "model": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
            "input": {"shape": [2]}, "field": [{"linear": {"in": 2, "out": 2}}]},
  "fit": {"optimiser": {"iterations": 1, "batch": 16, "rate": 0.01}, "solver": "rk4:2"},
  "calibrate": {"plans": ["heun:1"], "reference": "dopri5:1e-6", "rows": 16, "batch": 16}})";

TEST(Usage, AModelThatIsThereIsReplacedOnlyWhenAsked) {
  const TemporaryFolder models;
  const std::string folder = models.path() + "/small", recipe = models.path() + "/recipe.json";
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(WriteFileAtomically(folder + "/model.json", "mine").ok());
  ASSERT_TRUE(WriteFileAtomically(recipe, kSmallRecipe).ok());
  std::vector<std::string> words = {HYPERSERVE_TRAIN_BINARY, "model", "--recipe=" + recipe,
                                    "--models=" + models.path(), "--device=cpu"};
  const Finished refused = RunToEnd(words);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr(folder + " holds a model already"));
  EXPECT_THAT(refused.err, HasSubstr("name another --models, or give --replace"));
  EXPECT_EQ(ReadFile(folder + "/model.json", 1 << 20).value_or(""), "mine");
  std::vector<std::string> nowhere = words;
  nowhere[3] = "--models=" + folder + "/model.json";
  const Finished impossible = RunToEnd(nowhere);
  EXPECT_EQ(impossible.exit_code, 1);
  EXPECT_THAT(impossible.err, HasSubstr("cannot make " + folder + "/model.json/small"));
  words.push_back("--replace");
  const Finished replaced = RunToEnd(words);
  EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_NE(ReadFile(folder + "/model.json", 1 << 20).value_or(""), "mine");
}

}  // namespace
}  // namespace hyperserve
