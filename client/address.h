// What names a daemon: told apart from a slip before anything waits for a connection.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace hyperserve {

// OK for HOST:PORT, the host a name, an IPv4 address or an IPv6 address in brackets, the port from
// 1 to 65535. Else kInvalidArgument, which says what is wrong and what would be right; the address
// itself is for the caller to name. Pure: looks nothing up.
absl::Status CheckAddress(std::string_view address);

}  // namespace hyperserve
