#include "tests/e2e/daemon.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/io/file.h"

namespace hyperserve {
namespace {

constexpr int64_t kLogBytesMax = 256 << 20;

// Of a port that was free a moment ago.
std::string FreeAddress() {
  const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(holder, any, size), 0);
  EXPECT_EQ(getsockname(holder, any, &size), 0);
  close(holder);
  return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

}  // namespace

void Daemon::Launch(const std::string& repository, const std::vector<std::string>& flags) {
  std::vector<std::string> words = {HYPERSERVE_BINARY, "--models=" + repository,
                                    "--ports_file=" + folder_.path() + "/ports.json"};
  words.insert(words.end(), flags.begin(), flags.end());
  process_ = std::make_unique<Process>(words, folder_.path() + "/out", folder_.path() + "/log");
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& repository,
                                                      std::vector<std::string> flags) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  for (const char* address : {"--address", "--admin_address", "--http_address"}) {
    flags.insert(flags.begin(), absl::StrCat(address, "=127.0.0.1:0"));
  }
  daemon->Launch(repository, flags);
  HS_RETURN_IF_ERROR(daemon->WaitUntil(
      [&] { return daemon->ReadPorts() && daemon->Get("/readyz").status == 200; }));
  return daemon;
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::StartLoading(const std::string& repository) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  // The daemon writes its ports file only once it is ready, so the test chooses the ports.
  daemon->address_ = FreeAddress();
  daemon->admin_address_ = FreeAddress();
  daemon->http_address_ = FreeAddress();
  daemon->Launch(repository,
                 {"--address=" + daemon->address_, "--admin_address=" + daemon->admin_address_,
                  "--http_address=" + daemon->http_address_});
  HS_RETURN_IF_ERROR(daemon->WaitUntil([&] { return daemon->Get("/livez").status == 200; }));
  return daemon;
}

Daemon::~Daemon() {
  if (testing::Test::HasFailure()) std::cerr << "the daemon's log:\n" << Log() << "\n";
}

absl::Status Daemon::WaitUntil(const std::function<bool()>& answers) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (std::chrono::steady_clock::now() < end) {
    if (const auto code = process_->Wait(std::chrono::milliseconds(0))) {
      return absl::InternalError(
          absl::StrCat("the daemon ended with ", *code, "; its log:\n", Log()));
    }
    if (answers()) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the daemon did not answer in time; its log:\n", Log()));
}

bool Daemon::ReadPorts() {
  const auto text = ReadFile(folder_.path() + "/ports.json", kLogBytesMax);
  if (!text.ok()) return false;
  const auto ports = ParseJson(*text).fields();
  address_ = ports.at("address").string_value();
  admin_address_ = ports.at("admin_address").string_value();
  http_address_ = ports.at("http_address").string_value();
  return true;
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
  constexpr std::array<std::string_view, 5> kAdmin = {"publish", "rollback", "load", "unload",
                                                      "watch"};
  if (std::ranges::find(kAdmin, words[1]) != kAdmin.end()) {
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
