// Where a daemon listens, or is called: told apart from a slip before anything waits for it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

struct HostPort {
  std::string host;  // an IPv6 address in its brackets
  int port = 0;
};

// HOST:PORT, the host a name, an IPv4 address or an IPv6 address in brackets, the port from
// `port_min` (1 to call, 0 to listen on any free one) to 65535. Else kInvalidArgument, which says
// what is wrong and what would be right; the text itself is for the caller to name. Pure: looks
// nothing up.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int port_min);

}  // namespace hyperserve
