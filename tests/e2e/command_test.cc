// hyperserve-client and the Python script as their users call them: numbers, exit codes, words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/deadline.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "core/plan/plan.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using google::protobuf::Struct;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tiny::Distance;

constexpr double kFloatError = 2e-5;

class Commands : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    files_ = std::make_unique<TemporaryFolder>();
    repository_ = std::make_unique<TemporaryFolder>();
    ASSERT_TRUE(fixture::WriteTinyRepository(repository_->path()).ok());
    auto daemon = Daemon::Start(repository_->path());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    WriteIdx();
  }
  static void TearDownTestSuite() {
    daemon_.reset();
    repository_.reset();
    files_.reset();
  }
  // 20 images of the tiny classifier and labels that are all 1.
  static void WriteIdx() {
    const HostTensor images = fixture::TinyInputs(fixture::TinyClassifier(), 20);
    std::string idx = {0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0, 0, 4};
    idx.append(reinterpret_cast<const char*>(images.bytes.data()), images.bytes.size());
    ASSERT_TRUE(WriteFileAtomically(File("images"), idx).ok());
    ASSERT_TRUE(WriteFileAtomically(File("labels"),
                                    std::string({0, 0, 8, 1, 0, 0, 0, 20}) + std::string(20, '\1'))
                    .ok());
  }
  static std::string File(const std::string& name) { return files_->path() + "/" + name; }

  static Finished Run(const std::vector<std::string>& words) { return RunClient(*daemon_, words); }
  // Output and failures of a line of shell, together and through a pipe, then "rc CODE".
  static Finished Shell(const std::string& line) {
    return RunToEnd({"/bin/sh", "-c", "{ ( " + line + " ) 2>&1; echo rc $?; } | cat"});
  }
  // Runs with --format=json and exit code `expected`.
  static Struct Json(std::vector<std::string> words, int expected = 0) {
    words.push_back("--format=json");
    const Finished finished = Run(words);
    EXPECT_EQ(finished.exit_code, expected) << finished.err;
    return ParseJson(finished.out);
  }
  static std::vector<double> Field(const Struct& json, const std::string& name) {
    const auto found = json.fields().find(name);
    EXPECT_NE(found, json.fields().end()) << name;
    return found == json.fields().end() ? std::vector<double>() : JsonNumbers(found->second);
  }

  static std::unique_ptr<TemporaryFolder> files_, repository_;
  static std::unique_ptr<Daemon> daemon_;
};

std::unique_ptr<TemporaryFolder> Commands::files_, Commands::repository_;
std::unique_ptr<Daemon> Commands::daemon_;

TEST_F(Commands, ClassifySplitsAndPutsTogether) {
  const std::vector<std::string> words = {
      "classify", File("images"), "--model=tiny_classifier",   "--plan=hyper_euler:2",
      "--logits", "--batch=3",    "--labels=" + File("labels")};
  const Struct json = Json(words);
  const auto logits = Field(json, "logits");
  ASSERT_EQ(logits.size(), 60u);
  Client client(daemon_->client_options());
  v1::ClassifyRequest request = tiny::ClassifyRows(20, "hyper_euler:2");
  request.mutable_want()->set_labels(true);
  request.mutable_want()->set_logits(true);
  const auto reply = client.Classify(request, Deadline::In(kSoon));
  ASSERT_TRUE(reply.ok()) << reply.status();
  // Printed so that they read back the same. On a GPU requests of other sizes are rounded
  // otherwise.
  const double rounding = reply->info().device() == "cpu" ? 0 : kFloatError;
  const std::vector<double> wanted = tiny::Numbers(reply->logits());
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<float>(logits[i]) - static_cast<float>(wanted[i])), rounding);
  }
  const auto labels = Field(json, "labels");
  EXPECT_EQ(Field(json, "accuracy")[0], std::ranges::count(labels, 1.0) / 20.0);
  EXPECT_EQ(Field(json, "nfe"), std::vector<double>{2});
  const Finished table = Run(words);
  EXPECT_THAT(table.out, HasSubstr("20 rows of tiny_classifier, plan hyper_euler:2"));
  EXPECT_THAT(table.out, HasSubstr("accuracy"));
}

TEST_F(Commands, SampleIsTheSameHoweverItIsWritten) {
  const std::vector<std::string> words = {"sample", "--model=tiny_flow", "--plan=hyper_heun:2",
                                          "--rows=50", "--seed=42"};
  const auto points = Field(Json(words), "samples");
  EXPECT_LT(Distance(points, tiny::ExactSamples(50)), kFloatError);
  auto to_file = [&](const std::string& path, const std::string& rows) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--out=" + path, "--rows=" + rows});
    return Run(more);
  };
  EXPECT_EQ(to_file(File("points.csv"), "50").exit_code, 0);
  EXPECT_EQ(ReadFile(File("points.csv"), 1 << 20).value(), Run(words).out);
  EXPECT_EQ(to_file(File("many.safetensors"), "10000").exit_code, 0);
  const auto many = SafetensorsFile::Open(File("many.safetensors"));
  ASSERT_TRUE(many.ok()) << many.status();
  const TensorView x = *many->Find("x");
  EXPECT_EQ(x.shape, Shape({10000, 2})) << "a stream";
  const auto* const floats = reinterpret_cast<const float*>(x.bytes.data());
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(points[i])) << "a stream's rows are a call's rows";
  }
  const Finished wrong = to_file(File("points.jpg"), "50");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr(".png"));
}

TEST_F(Commands, SampleDrawsAPictureOrSaysWhatIsMissing) {
  std::vector<std::string> words = {HYPERSERVE_CLIENT_BINARY,
                                    "sample",
                                    "--model=tiny_flow",
                                    "--rows=500",
                                    "--address=" + daemon_->address(),
                                    "--out=" + File("points.png")};
  const Finished without = RunToEnd(words, {{"PATH", "/nowhere"}});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.err, HasSubstr("gnuplot is not installed"));
  EXPECT_FALSE(std::filesystem::exists(File("points.png")));
  if (access(GNUPLOT, X_OK) != 0) GTEST_SKIP() << "gnuplot is not installed";
  const Finished drawn = RunToEnd(words);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(ReadFile(File("points.png"), 16 << 20).value_or("").substr(1, 3), "PNG");
  const Finished limited = Shell("ulimit -f 1; exec " + absl::StrJoin(words, " ") + "2.png");
  EXPECT_THAT(limited.out, HasSubstr("cannot write: File too large\nwhat to do: name a file"));
  EXPECT_FALSE(std::filesystem::exists(File("points.png2.png"))) << "whole or not at all";
}

TEST_F(Commands, OutputThatCannotBeWrittenIsAFailure) {
  const std::string program = HYPERSERVE_CLIENT_BINARY " ", at = " --address=" + daemon_->address();
  const std::string few = "sample --model=tiny_flow --rows=10", many = few + "000";
  const std::string classify =
      absl::StrCat("classify ", File("images"), " --model=tiny_classifier");
  const std::string told = "stdout could not be written: ";
  for (const std::string& words : {few, few + " --format=json", many, classify}) {
    SCOPED_TRACE(words);
    const Finished full = Shell(absl::StrCat("exec ", program, words, at, " >/dev/full"));
    EXPECT_THAT(full.out, EndsWith(told + "No space left on device\nrc 1\n"));
  }
  EXPECT_EQ(Shell("exec " + program + "--help >/dev/full").out,
            told + "No space left on device\nrc 1\n");
  EXPECT_EQ(Shell("exec " + program + "models" + at + " >&-").out,
            told + "Bad file descriptor\nrc 1\n");
  EXPECT_EQ(Shell("ulimit -f 1; exec " + program + many + at + " >" + File("cut")).out,
            told + "File too large\nrc 1\n");
  EXPECT_EQ(Shell("{ " + program + many + at + "; echo $? >" + File("code") + "; } | head -1").out,
            "x0,x1\nrc 0\n");
  EXPECT_EQ(ReadFile(File("code"), 10).value_or(""), "141\n") << "128 + SIGPIPE";
}

TEST_F(Commands, FilesThatCannotBeWrittenAreSpokenOf) {
  std::filesystem::create_directory(File("folder.csv"));
  const auto expect = [](std::vector<std::string> words, const std::string& said) {
    words.insert(words.begin() + 1, {"--model=tiny_flow", "--plan=heun:2"});
    const Finished finished = Run(words);
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_THAT(finished.err, HasSubstr(said));
    EXPECT_THAT(finished.err, HasSubstr("what to do: name a file in a folder that can be written"));
  };
  expect({"sample", "--out=/nowhere/x.csv"}, "NOT_FOUND: /nowhere/x.csv");
  expect({"sample", "--out=" + File("folder.csv")}, "folder.csv: cannot rename to it");
  expect({"bench", "--count=1", "--json_lines=/nowhere/lines"}, "NOT_FOUND: /nowhere/lines");
  ASSERT_TRUE(WriteFileAtomically(File("points.csv"), "0.5,-1\n").ok());
  expect({"solve", File("points.csv"), "--out=/nowhere/x.safetensors"}, "NOT_FOUND: /nowhere/x");
}

TEST_F(Commands, LogProbAndSolve) {
  ASSERT_TRUE(WriteFileAtomically(File("points.csv"), "x,y\n0.5,-1\n0.25,2\n").ok());
  const auto density = Field(
      Json({"log-prob", File("points.csv"), "--model=tiny_flow", "--plan=dopri5:1e-10/double"}),
      "log_prob");
  ASSERT_EQ(density.size(), 2u);
  const fixture::LinearModel flow = fixture::TinyFlow();
  const auto noise = fixture::ExactSolution(flow, Direction::kDataToNoise, {0.5, -1}, 1.0);
  EXPECT_NEAR(
      density[0],
      -(noise[0] * noise[0] + noise[1] * noise[1]) / 2 - std::log(2 * M_PI) - flow.a[0] - flow.a[3],
      1e-8);
  const Struct solved = Json({"solve", File("points.csv"), "--model=tiny_flow", "--state",
                              "--plan=dopri5:1e-10/double", "--span=0,0.5", "--save_at=0.25,0.5"});
  const auto half = fixture::ExactSolution(flow, flow.direction, {0.5, -1}, 0.5);
  const auto state = Field(solved, "state"), saved = Field(solved, "saved");
  ASSERT_EQ(saved.size(), 8u);
  EXPECT_LT(Distance({state[0], state[1]}, half), 1e-8);
  EXPECT_LT(Distance({saved[2], saved[3]}, half), 1e-8);
  EXPECT_EQ(Run({"solve", File("points.csv"), "--model=tiny_flow", "--span=0"}).exit_code, 2);
}

TEST_F(Commands, SavedStatesAreNotLostUnsaid) {
  ASSERT_TRUE(WriteFileAtomically(File("points.csv"), "0.5,-1\n").ok());
  const auto solve = [](const std::string& more) {
    return Run({"solve", File("points.csv"), "--model=tiny_flow", "--save_at=0.25,0.5", more});
  };
  const Finished refused = solve("--out=" + File("lost.csv"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("name a .safetensors, or take --format json"));
  EXPECT_FALSE(std::filesystem::exists(File("lost.csv")));
  EXPECT_THAT(
      solve("--format=table").err,
      HasSubstr("\n2 saved depths a row not shown: --out FILE.safetensors or --format json"));
  const Finished written = solve("--out=" + File("kept.safetensors"));
  EXPECT_THAT(written.out, HasSubstr("\nwritten to " + File("kept.safetensors") + "\n"));
  const auto kept = SafetensorsFile::Open(File("kept.safetensors"));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->Find("saved")->shape, Shape({1, 2, 2}));
}

TEST_F(Commands, CompareMeasuresErrorAgainstItsReference) {
  const Struct flows = Json({"compare", "--model=tiny_flow", "--rows=100", "--batch=30",
                             "--plans=heun:2 hyper_heun:2", "--reference=dopri5:1e-9/double"});
  const auto& plans = flows.fields().at("plans").list_value();
  ASSERT_EQ(plans.values_size(), 3);
  const Struct& heun = plans.values(1).struct_value();
  const Struct& hyper = plans.values(2).struct_value();
  EXPECT_EQ(Field(plans.values(0).struct_value(), "error_mean")[0], 0);
  EXPECT_GT(Field(heun, "error_mean")[0], 1e-3);
  EXPECT_LT(Field(hyper, "error_mean")[0], 1e-6);
  EXPECT_EQ(Field(hyper, "nfe")[0], 4);
  EXPECT_EQ(Field(hyper, "correction_evaluations")[0], 2);
  EXPECT_GT(Field(hyper, "macs")[0], Field(heun, "macs")[0]) << "the cost of g counts";
  const Finished images = Run({"compare", File("images"), "--model=tiny_classifier",
                               "--plans=euler:1 hyper_euler:2", "--labels=" + File("labels")});
  EXPECT_EQ(images.exit_code, 0) << images.err;
  EXPECT_THAT(images.out, HasSubstr("hyper_euler:2"));
  EXPECT_EQ(Run({"compare", "--model=tiny_classifier", "--plans=euler:1"}).exit_code, 2);
  const Finished one = Run({"compare", "--model=tiny_flow", "--plans=heun:1"});
  EXPECT_THAT(one.out, HasSubstr("\n1 row; error"));
  const Finished calibrated = Run({"compare", "--model=tiny_flow", "--rows=10"});
  EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err;
  EXPECT_THAT(calibrated.out, HasSubstr("ralston:3")) << "the calibrated plans";
}

TEST_F(Commands, OptionsThatWouldBeIgnoredAreRefused) {
  const Finished cut = Run({"compare", "--model=tiny_flow", "--plans=heun:1", "--limit=10"});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(cut.err, HasSubstr("--limit=10 cuts INPUT, and none is given: --rows=10"));
  EXPECT_EQ(Run({"bench", "--model=tiny_flow", "--count=1", "--limit=10"}).exit_code, 2);
  const Finished drawn =
      Run({"compare", File("images"), "--model=tiny_classifier", "--plans=euler:1", "--rows=7"});
  EXPECT_EQ(drawn.exit_code, 2);
  EXPECT_THAT(drawn.err, HasSubstr("--rows=7 draws samples"));
  EXPECT_THAT(drawn.err, HasSubstr("--limit cuts it"));
}

TEST_F(Commands, RowsThatFailedEndInThree) {
  const Struct json = Json({"classify", File("images"), "--model=tiny_classifier",
                            "--plan=dopri5:1e-10/double", "--max_steps=1"},
                           3);
  EXPECT_EQ(Field(json, "rows_failed")[0], 20);
  EXPECT_EQ(json.fields().at("row_status").string_value(), "step_limit");
  EXPECT_EQ(Field(json, "labels")[0], -1);
  const Finished samples = Run(
      {"sample", "--model=tiny_flow", "--rows=4", "--plan=dopri5:1e-10/double", "--max_steps=1"});
  EXPECT_EQ(samples.exit_code, 3);
  EXPECT_THAT(samples.err, HasSubstr("4 rows of tiny_flow, plan dopri5:1e-10/double, generation"));
  EXPECT_THAT(samples.err, HasSubstr("; 4 rows failed: step_limit\n"));
}

TEST_F(Commands, ModelsAndHealth) {
  EXPECT_EQ(Json({"models"}).fields().at("models").list_value().values_size(), 2);
  EXPECT_THAT(Run({"models"}).out, HasSubstr("hyper_heun generation"));
  const Struct model = Json({"models", "tiny_flow"});
  EXPECT_EQ(model.fields().at("kind").string_value(), "flow");
  EXPECT_EQ(Run({"models", "tiny_flow"}).exit_code, 0);
  EXPECT_EQ(Json({"health"}).fields().at("status").string_value(), "SERVING");
  EXPECT_EQ(Run({"health", "model/tiny_flow", "--watch", "--timeout=200ms"}).out,
            "model/tiny_flow: SERVING\n");
  const Finished nobody = Run({"health", "model/nobody"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("NOT_FOUND"));
  const Finished missing = Run({"classify", "/nowhere", "--model=tiny_classifier"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, StartsWith("NOT_FOUND: /nowhere: cannot open"));
  const Finished nowhere = RunToEnd({HYPERSERVE_CLIENT_BINARY, "models", "--address=foo bar"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, StartsWith("--address=foo bar: there is no port"));
  EXPECT_EQ(Run({"models", "--timeout=0"}).exit_code, 2);
}

TEST_F(Commands, ModelsClaimNothingThatIsNotSo) {
  const TemporaryFolder folder;
  ASSERT_TRUE(fixture::WriteTinyRepository(folder.path()).ok());
  const std::string flow = folder.path() + "/tiny_flow";
  ASSERT_TRUE(WriteFileAtomically(flow + "/hypersolvers/heun/1/hypersolver.json", "cut").ok());
  auto calibration = ParseCalibration(ReadFile(flow + "/calibration.json", 1 << 20).value());
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  calibration->plans.push_back(
      {.plan = *ParsePlan("heun:2"), .error_mean = 0.25, .error_max = 0.5, .nfe = 4});
  ASSERT_TRUE(WriteFileAtomically(flow + "/calibration.json", PrintCalibration(*calibration)).ok());
  const auto daemon = Daemon::Start(folder.path());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_THAT(RunClient(**daemon, {"models"}).out, HasSubstr("hyper_heun: none served ("));
  const std::string shown = RunClient(**daemon, {"models", "tiny_flow"}).out;
  EXPECT_THAT(shown, HasSubstr("hyper_heun: none served ("));
  EXPECT_THAT(shown, Not(HasSubstr("eps in []")));
  EXPECT_THAT(shown, ContainsRegex("\nheun:2 +0.25 +[0-9.]+ +0.5 +- .* -\n"))
      << "no labels, no wins";
}

TEST_F(Commands, PublishAndRollback) {
  const std::filesystem::path folder = File("generation");
  std::filesystem::create_directory(folder);
  fixture::CorrectionOptions options = fixture::DefaultCorrection(fixture::TinyClassifier());
  for (const auto& [name, bytes] : fixture::TinyCorrection(fixture::TinyClassifier(), options)) {
    ASSERT_TRUE(WriteFileAtomically(folder / name, bytes).ok());
  }
  const Finished late =
      Run({"publish", folder.string(), "--model=tiny_classifier", "--parent_generation=5"});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("ABORTED"));
  EXPECT_THAT(late.err, HasSubstr("what to do"));
  const Struct published =
      Json({"publish", folder.string(), "--model=tiny_classifier", "--parent_generation=1"});
  EXPECT_EQ(Field(published, "previous_generation")[0], 1);
  EXPECT_GT(Field(published, "generation")[0], 1);
  const Finished back = Run({"rollback", "--model=tiny_classifier", "--method=euler"});
  EXPECT_EQ(back.exit_code, 0) << back.err;
  EXPECT_THAT(back.out, HasSubstr("generation 1 is served"));
  EXPECT_EQ(Run({"rollback", "--model=tiny_classifier"}).exit_code, 2);
}

TEST_F(Commands, BenchCountsEveryRequest) {
  const Struct json =
      Json({"bench", "--model=tiny_flow", "--plan=hyper_heun:2", "--rows=4", "--count=40",
            "--concurrency=3", "--duration=60s", "--json_lines=" + File("lines")});
  EXPECT_EQ(Field(json, "requests_ok")[0], 40);
  EXPECT_EQ(Field(json, "requests_failed")[0], 0);
  const Struct& latency = json.fields().at("latency_seconds").struct_value();
  EXPECT_LE(Field(latency, "p50")[0], Field(latency, "p99")[0]);
  const std::string lines = ReadFile(File("lines"), 1 << 20).value();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 40);
  const Struct first = ParseJson(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first.fields().at("code").string_value(), "OK");
  EXPECT_GT(Field(first, "seconds")[0], 0);
  EXPECT_EQ(Run({"bench", File("images"), "--model=tiny_classifier", "--count=5"}).exit_code, 0);
  const Finished failing =
      Run({"bench", "--model=tiny_flow", "--plan=hyper_heun:100", "--count=5"});
  EXPECT_EQ(failing.exit_code, 1);
  EXPECT_THAT(failing.out, HasSubstr("FAILED_PRECONDITION 5"));
  EXPECT_THAT(failing.out, testing::Not(testing::ContainsRegex("nan|generations|latency")));
  EXPECT_THAT(Run({"bench", "--model=tiny_flow", "--condition=1", "--count=1"}).err,
              HasSubstr("--condition=1: model tiny_flow has none"));
  EXPECT_THAT(failing.err, HasSubstr("FAILED_PRECONDITION: not one request was answered"));
  EXPECT_THAT(failing.err, HasSubstr("step"));
  EXPECT_EQ(Run({"bench", "--model=tiny_flow", "--concurrency=4097"}).exit_code, 2);
}

TEST_F(Commands, PythonOnGeneratedStubs) {
  if (RunToEnd({PYTHON, "-c", "import grpc"}).exit_code != 0) GTEST_SKIP() << "no python3-grpcio";
  const Finished script = RunToEnd({PYTHON, "-B", PYTHON_SCRIPT, "--address=" + daemon_->address(),
                                    "--classifier=tiny_classifier", "--images=" + File("images"),
                                    "--flow=tiny_flow", "--plan=default", "--rows=6", "--seed=42"},
                                   {{"PYTHONPATH", PYTHON_STUBS}});
  ASSERT_EQ(script.exit_code, 0) << script.err;
  const Struct json = ParseJson(script.out);
  const Struct& sample = json.fields().at("sample").struct_value();
  EXPECT_LT(Distance(Field(sample, "samples"), tiny::ExactSamples(6)), 1e-3);
  const Struct& classified = json.fields().at("classify").struct_value();
  EXPECT_EQ(Field(classified, "labels").size(), 6u);
}

}  // namespace
}  // namespace hyperserve
