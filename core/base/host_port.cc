#include "core/base/host_port.h"

#include <charconv>
#include <string>

#include "core/base/status.h"

namespace hyperserve {
namespace {

absl::Status Wrong(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(Absl(what), "; write HOST:PORT, as in 127.0.0.1:8500 or [::1]:8500"));
}

constexpr char kDigitsAndLetters[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool IsHost(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  const std::string_view name = bracketed ? host.substr(1, host.size() - 2) : host;
  const std::string allowed = absl::StrCat(kDigitsAndLetters, bracketed ? ":.%" : ".-_");
  return !name.empty() && name.find_first_not_of(allowed) == name.npos;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(std::string_view address, int port_min) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos || address.ends_with(']')) return Wrong("there is no port");
  const std::string_view host = address.substr(0, colon), text = address.substr(colon + 1);
  if (!IsHost(host)) return Wrong(absl::StrCat("'", Absl(host), "' is no host"));
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < port_min || port > 65535) {
    return Wrong(absl::StrCat("'", Absl(text), "' is no port from ", port_min, " to 65535"));
  }
  return HostPort{.host = std::string(host), .port = port};
}

}  // namespace hyperserve
