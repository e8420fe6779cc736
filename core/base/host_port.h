// Network addresses as people write them. A program parses an address before it waits for one, so
// that a typing error fails at once. Pure; any thread may call it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hyperserve {

// What ParseHostPort read.
struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 address with its brackets
  int port = 0;
};

// Reads HOST:PORT. The port lies within [port_min, 65535]: callers pass 1; listeners pass 0, which
// stands for any free port. kInvalidArgument says what is wrong and shows a correct address. The
// caller adds the name of the option or field that holds the text. The host is never looked up, so
// it may not exist.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int port_min);

}  // namespace hyperserve
