// The real daemon as a process, on ports that the system chose.
#pragma once

#include <google/protobuf/struct.pb.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "tests/e2e/process.h"
#include "tests/testing/model_fixture.h"

namespace hyperserve {

// The longest time that a quick event may take on a busy machine.
inline constexpr std::chrono::seconds kSoon{60};

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string body;
};

class Daemon {
 public:
  // Starts it on `repository` and waits until it is ready. An error holds the daemon's log.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::string& repository,
                                                       std::vector<std::string> flags = {});
  // Starts it and waits until it answers at all. With a slow repository it is still loading then.
  static absl::StatusOr<std::unique_ptr<Daemon>> StartLoading(const std::string& repository);
  ~Daemon();  // killed, if it still runs

  ClientOptions client_options() const;
  const std::string& address() const { return address_; }
  const std::string& admin_address() const { return admin_address_; }
  const std::string& http_address() const { return http_address_; }
  HttpAnswer Get(const std::string& path) const;

  pid_t id() const { return process_->id(); }
  void Signal(int signal) const { process_->Signal(signal); }
  std::optional<int> WaitForExit(std::chrono::milliseconds limit = kSoon) {
    return process_->Wait(limit);
  }
  std::string Log() const;

 private:
  Daemon() = default;
  void Launch(const std::string& repository, const std::vector<std::string>& flags);
  // Waits until `answers` says yes; an error holds the log.
  absl::Status WaitUntil(const std::function<bool()>& answers);
  bool ReadPorts();

  TemporaryFolder folder_;
  std::unique_ptr<Process> process_;
  std::string address_, admin_address_, http_address_;
};

// Runs the client program against this daemon. `words`: command, arguments, options.
Finished RunClient(const Daemon& daemon, std::vector<std::string> words);

// JSON text as a value; the test fails if it is not JSON.
google::protobuf::Struct ParseJson(const std::string& text);
// Numbers of a list, nested ones flattened; null is NaN.
std::vector<double> JsonNumbers(const google::protobuf::Value& value);

}  // namespace hyperserve
