#include "client/address.h"

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

absl::Status CheckAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos || address.ends_with(']')) return Wrong("there is no port");
  const std::string_view host = address.substr(0, colon), text = address.substr(colon + 1);
  if (!IsHost(host)) return Wrong(absl::StrCat("'", Absl(host), "' is no host"));
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    return Wrong(absl::StrCat("'", Absl(text), "' is no port from 1 to 65535"));
  }
  return absl::OkStatus();
}

}  // namespace hyperserve
