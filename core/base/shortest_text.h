// Floating-point numbers as text without loss. A rounded number in an error message can look as if
// it were within the limit that it broke.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>

namespace hyperserve {

// The shortest decimal text that reads back as the same float or double; "nan", "inf", "-inf".
// Never fails, and does not depend on the locale. Any thread.
template <std::floating_point Number>
std::string ShortestText(Number value) {
  std::array<char, 64> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

}  // namespace hyperserve
