// Foreign text as valid UTF-8. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace hyperserve {

// The text, cut to at most `bytes_max` bytes between two characters; bytes that are no UTF-8 become
// '?'. Never fails.
std::string Utf8(std::string_view text, size_t bytes_max);

}  // namespace hyperserve
