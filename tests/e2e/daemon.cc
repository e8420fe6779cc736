#include "tests/e2e/daemon.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/io/file.h"

namespace hyperserve {
namespace {

constexpr int64_t kLogBytesMax = 256 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& repository,
                                                      std::vector<std::string> flags) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  const std::string ports_file = daemon->folder_.path() + "/ports.json";
  std::vector<std::string> words = {
      HYPERSERVE_BINARY,           "--models=" + repository,      "--device=cpu",
      "--address=127.0.0.1:0",     "--admin_address=127.0.0.1:0", "--http_address=127.0.0.1:0",
      "--ports_file=" + ports_file};
  words.insert(words.end(), flags.begin(), flags.end());
  daemon->process_ = std::make_unique<Process>(words, daemon->folder_.path() + "/out",
                                               daemon->folder_.path() + "/log");
  const absl::Status ready = daemon->WaitUntilReady(ports_file);
  if (!ready.ok()) {
    return absl::Status(ready.code(), absl::StrCat(ready.message(), "; its log:\n", daemon->Log()));
  }
  return daemon;
}

Daemon::~Daemon() {
  if (testing::Test::HasFailure()) std::cerr << "the daemon's log:\n" << Log() << "\n";
}

absl::Status Daemon::WaitUntilReady(const std::string& ports_file) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (std::chrono::steady_clock::now() < end) {
    if (const auto code = process_->Wait(std::chrono::milliseconds(0))) {
      return absl::InternalError(absl::StrCat("the daemon ended with ", *code));
    }
    if (const auto text = ReadFile(ports_file, kLogBytesMax); text.ok()) {
      const auto ports = ParseJson(*text).fields();
      address_ = ports.at("address").string_value();
      admin_address_ = ports.at("admin_address").string_value();
      http_address_ = ports.at("http_address").string_value();
      if (Get("/readyz").status == 200) return absl::OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return absl::DeadlineExceededError("the daemon did not become ready");
}

ClientOptions Daemon::client_options() const {
  return {.address = address_, .admin_address = admin_address_};
}

HttpAnswer Daemon::Get(const std::string& path) const {
  httplib::Client http("http://" + http_address_);
  http.set_read_timeout(kSoon);
  const auto result = http.Get(path.c_str());
  if (!result) return {};
  return {.status = result->status, .body = result->body};
}

std::string Daemon::Log() const {
  return absl::StrCat(ReadFile(folder_.path() + "/out", kLogBytesMax).value_or(""),
                      ReadFile(folder_.path() + "/log", kLogBytesMax).value_or(""));
}

Finished RunClient(const Daemon& daemon, std::vector<std::string> words) {
  words.insert(words.begin(), HYPERSERVE_CLIENT_BINARY);
  words.push_back("--address=" + daemon.address());
  if (words[1] == "publish" || words[1] == "rollback") {
    words.push_back("--admin_address=" + daemon.admin_address());
  }
  return RunToEnd(words);
}

google::protobuf::Struct ParseJson(const std::string& text) {
  google::protobuf::Struct value;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &value);
  EXPECT_TRUE(status.ok()) << status << "\n" << text;
  return value;
}

std::vector<double> JsonNumbers(const google::protobuf::Value& value) {
  if (value.has_number_value()) return {value.number_value()};
  if (!value.has_list_value()) return {std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> numbers;
  for (const google::protobuf::Value& element : value.list_value().values()) {
    const std::vector<double> part = JsonNumbers(element);
    numbers.insert(numbers.end(), part.begin(), part.end());
  }
  return numbers;
}

}  // namespace hyperserve
