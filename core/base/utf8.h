// Foreign text as valid UTF-8. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace hyperserve {

// The text; bytes that are no UTF-8 become '?'. If it has more than `bytes_max` bytes, " ... "
// stands for its middle: a message that quotes something long begins with what it is about, and
// ends with what is wanted. Never fails.
std::string Utf8(std::string_view text, size_t bytes_max);

}  // namespace hyperserve
