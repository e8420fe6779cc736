// Rows as users have them: files of many forms and standard input through the client, numbers of
// two bytes over the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/deadline.h"
#include "client/wire_tensor.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/process.h"
#include "tests/e2e/tiny.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

class Forms : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    ASSERT_TRUE(fixture::WriteTinyRepository(folder_->path() + "/models").ok());
    auto daemon = Daemon::Start(folder_->path() + "/models");
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  static void TearDownTestSuite() {
    daemon_.reset();
    folder_.reset();
  }
  static std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_->path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return path;
  }
  static Client Caller() { return Client(daemon_->client_options()); }
  static Deadline Soon() { return Deadline::In(kSoon); }

  static std::unique_ptr<TemporaryFolder> folder_;
  static std::unique_ptr<Daemon> daemon_;
};

std::unique_ptr<TemporaryFolder> Forms::folder_;
std::unique_ptr<Daemon> Forms::daemon_;

std::string Npy(const std::vector<double>& numbers) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0';
  return bytes + header +
         std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(double));
}

TEST_F(Forms, AllGiveTheSameAnswer) {
  const std::vector<double> numbers = {0.5, -1, 0.25, 2};
  HostTensor half = HostTensor::Zeros(Dtype::kF64, {2, 2});
  std::memcpy(half.bytes.data(), numbers.data(), half.bytes.size());
  half = ConvertedTo(half.view(), Dtype::kF16);  // these numbers are exact
  const std::vector<std::string> files = {
      Write("commas.csv", "a,b\n0.5,-1\n0.25,2\n"),
      Write("semicolons.csv", "0.5;-1\n0.25;2\n"),
      Write("tabs.tsv", "0.5\t-1\n0.25\t2\n"),
      Write("blanks.txt", "# x y\n 0.5  -1\n.25 2\n"),
      Write("array.npy", Npy(numbers)),
      Write("half.safetensors", SerializeSafetensors({{"x", half.view()}}))};
  std::vector<double> first;
  for (const std::string& file : files) {
    const Finished run =
        RunClient(*daemon_, {"log-prob", file, "--model=tiny_flow", "--format=json"});
    ASSERT_EQ(run.exit_code, 0) << file << run.err;
    const auto found = JsonNumbers(ParseJson(run.out).fields().at("log_prob"));
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << file;
  }
}

TEST_F(Forms, SamplesGoBackThroughAPipe) {
  const std::string client = HYPERSERVE_CLIENT_BINARY;
  const std::string options = " --model=tiny_flow --plan=rk4:20 --address=" + daemon_->address();
  const std::string sample = client + " sample --rows=3 --log_density" + options;
  const Finished sampled = RunToEnd({"/bin/sh", "-c", sample + " --format=json"});
  ASSERT_EQ(sampled.exit_code, 0) << sampled.err;
  const std::string line = sample + " | " + client + " log-prob - --format=json" + options;
  const Finished run = RunToEnd({"/bin/sh", "-c", line});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LT(tiny::Distance(JsonNumbers(ParseJson(run.out).fields().at("log_prob")),
                           JsonNumbers(ParseJson(sampled.out).fields().at("log_density"))),
            1e-4);
}

TEST_F(Forms, WhatIsNoRowsIsCalledWhatItIs) {
  for (const auto& [file, what] :
       {std::pair{Write("a.npz", "PK\x03\x04..."), "this is a zip"},
        std::pair{Write("b.npy", "version https://git-lfs.github.com"), "git lfs pull"}}) {
    const Finished run = RunClient(*daemon_, {"log-prob", file, "--model=tiny_flow"});
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, HasSubstr(what));
  }
}

TEST_F(Forms, HalvesGoInAndComeBack) {
  v1::SolveRequest request = tiny::SolveRows(3, "rk4:4");
  const auto whole = FromWire(request.state());
  ASSERT_TRUE(whole.ok());
  const HostTensor half = ConvertedTo(whole->view(), Dtype::kF16);
  const HostTensor rounded = ConvertedTo(half.view(), Dtype::kF32);
  *request.mutable_state() = ToWire(rounded);
  request.add_save_at(0.5);
  const auto narrow = Caller().Solve(request, Soon());
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  *request.mutable_state() = ToWire(half);
  const auto same = Caller().Solve(request, Soon());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->state().data(), narrow->state().data()) << "F16 is exact in float32";
  request.mutable_options()->set_reply_dtype(v1::DTYPE_F16);
  const auto reply = Caller().Solve(request, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->state().dtype(), v1::DTYPE_F16);
  EXPECT_EQ(reply->saved().dtype(), v1::DTYPE_F16);
  EXPECT_EQ(2 * reply->state().data().size(), narrow->state().data().size());
  const HostTensor wanted = ConvertedTo(FromWire(narrow->state())->view(), Dtype::kF16);
  EXPECT_EQ(FromWire(reply->state())->bytes, wanted.bytes) << "rounded once, to the nearest";
}

TEST_F(Forms, HalvesOfEveryCall) {
  v1::ClassifyRequest classify = tiny::ClassifyRows(2, "euler:1");
  classify.mutable_options()->set_reply_dtype(v1::DTYPE_F16);
  classify.mutable_want()->set_logits(true);
  classify.mutable_want()->set_probabilities(true);
  const auto classes = Caller().Classify(classify, Soon());
  ASSERT_TRUE(classes.ok()) << classes.status();
  EXPECT_EQ(classes->logits().dtype(), v1::DTYPE_F16);
  EXPECT_EQ(classes->probabilities().data().size(), 2U * 3 * 2);
  v1::SampleStreamRequest stream;
  *stream.mutable_sample() = tiny::SampleRows(10, "heun:1");
  stream.mutable_sample()->mutable_options()->set_reply_dtype(v1::DTYPE_F16);
  stream.mutable_sample()->set_log_density(true);
  stream.set_chunk_rows(4);
  int64_t bytes = 0;
  const auto summary =
      Caller().SampleStream(stream, Soon(), [&](const v1::SampleChunk& chunk) -> absl::Status {
        bytes += static_cast<int64_t>(chunk.samples().data().size());
        EXPECT_EQ(chunk.log_density().dtype(), v1::DTYPE_F64);
        return absl::OkStatus();
      });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(bytes, 10 * 2 * 2);
  const Finished sampled = RunClient(
      *daemon_, {"sample", "--model=tiny_flow", "--rows=2", "--reply_dtype=F16", "--format=json"});
  EXPECT_EQ(sampled.exit_code, 0) << sampled.err;
  EXPECT_EQ(RunClient(*daemon_, {"sample", "--model=tiny_flow", "--reply_dtype=F8"}).exit_code, 2);
}

TEST_F(Forms, OtherDtypesAreRefusedInWords) {
  v1::SampleRequest request = tiny::SampleRows(1, "heun:1");
  for (const auto& [dtype, words] :
       {std::pair{v1::DTYPE_I64, "reply_dtype: I64 is not sent; ask for F16, F32, or F64"},
        std::pair{v1::DTYPE_F64, "reply_dtype: F64 is not sent"},
        std::pair{static_cast<v1::Dtype>(99), "reply_dtype: 99 is unknown"}}) {
    request.mutable_options()->set_reply_dtype(dtype);
    const auto reply = Caller().Sample(request, Soon());
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace hyperserve
