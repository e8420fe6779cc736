#include "client/connection.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hyperserve {
namespace {

constexpr char kPushbackKey[] = "grpc-retry-pushback-ms";

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int receive_bytes_max) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(receive_bytes_max);
  // The minimum is not set: it would limit the time of connecting itself.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // An HTTP proxy does not lead to a daemon, least of all to one on loopback.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each client of a process has a connection of its own, as clients of several processes have.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::optional<std::chrono::milliseconds> PushbackOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kPushbackKey);
  if (found == trailers.end()) return std::nullopt;
  return ParsePushback(std::string_view(found->second.data(), found->second.size()));
}

std::chrono::milliseconds TimeLeft(Deadline deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline.at -
                                                               std::chrono::system_clock::now());
}

double Jitter() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
}

}  // namespace

Connection::Connection(std::string address, int receive_bytes_max)
    : address_(std::move(address)), channel_(MakeChannel(address_, receive_bytes_max)) {}

bool Connection::Connect(Deadline deadline) const {
  while (true) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel_->WaitForStateChange(state, deadline.at)) return false;
  }
}

absl::Status Connection::Call(const RetryPolicy& policy, Deadline deadline,
                              const std::string& request_id,
                              const std::function<Attempt(grpc::ClientContext&)>& attempt) const {
  int attempts = 0;
  absl::StatusCode last_code = absl::StatusCode::kOk;
  while (true) {
    Attempt made;
    FailedAttempt failed;
    if (TimeLeft(deadline).count() <= 0) {
      made.status = {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed before it was sent"};
    } else if (!Connect(deadline)) {
      made.status = {grpc::StatusCode::UNAVAILABLE, absl::StrCat("no connection to ", address_)};
      failed.repeatable = true;
    } else {
      grpc::ClientContext context;
      context.set_deadline(deadline.at);
      made = attempt(context);
      if (made.status.ok()) return absl::OkStatus();
      if (made.status.error_code() == grpc::StatusCode::CANCELLED) {  // not by us
        made.status = {grpc::StatusCode::UNAVAILABLE,
                       absl::StrCat(address_, " closed while the call was under way")};
      }
      failed.repeatable = made.resumable;
      failed.pushback = PushbackOf(context);
    }
    failed.code = static_cast<absl::StatusCode>(made.status.error_code());
    attempts = made.progressed || failed.code != last_code ? 1 : attempts + 1;
    last_code = failed.code;
    failed.attempts = attempts;
    const auto delay = DecideRetry(policy, failed, TimeLeft(deadline), Jitter());
    if (!delay) {
      const std::string suffix =
          request_id.empty() ? "" : absl::StrCat(" (request ", request_id, ")");
      return absl::Status(failed.code, absl::StrCat(made.status.error_message(), suffix));
    }
    std::this_thread::sleep_for(*delay);
  }
}

}  // namespace hyperserve
