#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/deadline.h"
#include "client/retry.h"
#include "hyperserve/v1/hyperserve.pb.h"
#include "tests/client/fake_daemon.h"

namespace hyperserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr seconds kAmple{20};
constexpr int64_t kChunkRows = 10;
constexpr int64_t kGeneration = 5;

grpc::Status Broken() { return {grpc::StatusCode::UNAVAILABLE, "connection lost"}; }

// Sends at most `rows_max` of what is asked, in chunks; true when that was all.
bool Send(const v1::SampleRequest& request, int64_t rows_max, FakeDaemon::ChunkWriter& writer) {
  const int64_t rows = std::min(rows_max, request.rows());
  for (int64_t row = 0; row < rows; row += kChunkRows) {
    v1::SampleChunk chunk;
    chunk.set_first_row(request.first_row() + row);
    chunk.set_rows(std::min(kChunkRows, rows - row));
    chunk.set_generation(kGeneration);
    if (row + chunk.rows() == request.rows()) chunk.mutable_summary()->set_plan("heun:1");
    writer.Write(chunk);
  }
  return rows == request.rows();
}

v1::SampleStreamRequest Request(uint64_t first_row, int64_t rows) {
  v1::SampleStreamRequest request;
  request.mutable_sample()->set_first_row(first_row);
  request.mutable_sample()->set_rows(rows);
  return request;
}

struct Received {
  std::vector<uint64_t> rows;
  absl::StatusOr<v1::SolveInfo> summary;
};

Received Draw(const FakeDaemon& daemon, uint64_t first_row, int64_t rows) {
  ClientOptions options = daemon.options();
  options.retry.delay_first = milliseconds(1);
  Client client(options);
  Received received;
  received.summary = client.SampleStream(Request(first_row, rows), Deadline::In(kAmple),
                                         [&](const v1::SampleChunk& chunk) {
                                           for (int64_t i = 0; i < chunk.rows(); ++i)
                                             received.rows.push_back(chunk.first_row() + i);
                                           return absl::OkStatus();
                                         });
  return received;
}

std::vector<uint64_t> Range(uint64_t first, uint64_t rows) {
  std::vector<uint64_t> range;
  for (uint64_t i = 0; i < rows; ++i) range.push_back(first + i);
  return range;
}

TEST(SampleStream, EachRowOnceInOrder) {
  FakeDaemon daemon;
  daemon.on_stream = [](int, grpc::ServerContext&, const v1::SampleStreamRequest& request,
                        FakeDaemon::ChunkWriter& writer) {
    Send(request.sample(), request.sample().rows(), writer);
    return grpc::Status::OK;
  };
  const Received received = Draw(daemon, 100, 35);
  ASSERT_TRUE(received.summary.ok()) << received.summary.status();
  EXPECT_EQ(received.summary->plan(), "heun:1");
  EXPECT_EQ(received.rows, Range(100, 35));
}

// Condition and guidance go with their row: a resumed stream asks for those of the rows that are
// left.
TEST(SampleStream, ResumesWithWhatItsRowsBring) {
  using Mutable = v1::Tensor* (v1::SolveOptions::*)();
  const auto resumes = [](int64_t count, const v1::Tensor& (v1::SolveOptions::*get)() const,
                          Mutable mutable_get) {
    FakeDaemon daemon;
    std::vector<std::string> seen;
    daemon.on_stream = [&](int, grpc::ServerContext&, const v1::SampleStreamRequest& request,
                           FakeDaemon::ChunkWriter& writer) {
      const v1::Tensor& brought = (request.sample().options().*get)();
      seen.push_back(absl::StrCat(brought.shape(0), ":", brought.data().substr(0, 1)));
      return Send(request.sample(), 2 * kChunkRows, writer) ? grpc::Status::OK : Broken();
    };
    v1::SampleStreamRequest request = Request(0, 35);
    v1::Tensor& brought = *(request.mutable_sample()->mutable_options()->*mutable_get)();
    brought.set_dtype(v1::DTYPE_U8);
    brought.add_shape(count);
    brought.add_shape(1);
    for (int64_t i = 0; i < count; ++i) {
      brought.mutable_data()->push_back(static_cast<char>('A' + i));
    }
    Client client(daemon.options());
    ASSERT_TRUE(client
                    .SampleStream(request, Deadline::In(kAmple),
                                  [](const v1::SampleChunk&) { return absl::OkStatus(); })
                    .ok());
    EXPECT_THAT(seen, count == 1 ? testing::ElementsAre("1:A", "1:A")
                                 : testing::ElementsAre("35:A", "15:U"));
  };
  for (const int64_t count : {int64_t{35}, int64_t{1}}) {
    resumes(count, &v1::SolveOptions::condition, &v1::SolveOptions::mutable_condition);
    resumes(count, &v1::SolveOptions::guidance, &v1::SolveOptions::mutable_guidance);
  }
}

TEST(SampleStream, ResumesAfterItsLastRowOnTheSameGeneration) {
  FakeDaemon daemon;
  daemon.on_stream = [](int, grpc::ServerContext&, const v1::SampleStreamRequest& request,
                        FakeDaemon::ChunkWriter& writer) {
    return Send(request.sample(), 2 * kChunkRows, writer) ? grpc::Status::OK : Broken();
  };
  const Received received = Draw(daemon, 7, 155);  // breaks 7 times, more often than attempts
  ASSERT_TRUE(received.summary.ok()) << received.summary.status();
  EXPECT_EQ(received.rows, Range(7, 155));
  const auto requests = daemon.streamed();
  ASSERT_EQ(requests.size(), 8u);
  EXPECT_EQ(requests[0].sample().options().generation(), 0);
  EXPECT_EQ(requests[1].sample().first_row(), 27u);
  EXPECT_EQ(requests[1].sample().rows(), 135);
  EXPECT_EQ(requests[1].sample().options().generation(), kGeneration);
  EXPECT_EQ(requests[0].sample().options().request_id(),
            requests[7].sample().options().request_id());
}

TEST(SampleStream, GivesUpWhereNothingArrives) {
  FakeDaemon daemon;
  daemon.on_stream = [](int, grpc::ServerContext&, const v1::SampleStreamRequest&,
                        FakeDaemon::ChunkWriter&) { return Broken(); };
  const Received received = Draw(daemon, 0, 50);
  EXPECT_EQ(received.summary.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::ssize(daemon.streamed()), RetryPolicy().attempts_max);
}

TEST(SampleStream, ErrorsOfTheRequestAreNotRepeated) {
  FakeDaemon daemon;
  daemon.on_stream = [](int, grpc::ServerContext&, const v1::SampleStreamRequest&,
                        FakeDaemon::ChunkWriter&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no flow");
  };
  EXPECT_EQ(Draw(daemon, 0, 50).summary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(daemon.streamed().size(), 1u);
}

TEST(SampleStream, RowsOutOfOrderAndAnEarlyEndAreFaults) {
  FakeDaemon daemon;
  daemon.on_stream = [](int attempt, grpc::ServerContext&, const v1::SampleStreamRequest& request,
                        FakeDaemon::ChunkWriter& writer) {
    v1::SampleRequest sent = request.sample();
    if (attempt == 1) sent.set_first_row(sent.first_row() + 1);
    Send(sent, kChunkRows, writer);
    return grpc::Status::OK;
  };
  const Received wrong = Draw(daemon, 0, 50);
  EXPECT_EQ(wrong.summary.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(wrong.rows.empty());
  const Received early = Draw(daemon, 0, 50);
  EXPECT_EQ(early.summary.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(early.summary.status().message()), HasSubstr("40 rows early"));
}

TEST(SampleStream, EndsWhereTheCallerHasEnough) {
  FakeDaemon daemon;
  daemon.on_stream = [](int, grpc::ServerContext& context, const v1::SampleStreamRequest& request,
                        FakeDaemon::ChunkWriter& writer) {
    v1::SampleRequest rest = request.sample();
    while (!context.IsCancelled() && rest.rows() > 0) {
      Send(rest, kChunkRows, writer);
      rest.set_first_row(rest.first_row() + kChunkRows);
      rest.set_rows(rest.rows() - kChunkRows);
    }
    return grpc::Status::OK;
  };
  Client client(daemon.options());
  int chunks = 0;
  const auto summary = client.SampleStream(
      Request(0, 1'000'000'000), Deadline::In(kAmple), [&](const v1::SampleChunk&) {
        return ++chunks == 3 ? absl::OutOfRangeError("enough") : absl::OkStatus();
      });
  EXPECT_EQ(summary.status(), absl::OutOfRangeError("enough"));
  EXPECT_EQ(chunks, 3);
}

}  // namespace
}  // namespace hyperserve
