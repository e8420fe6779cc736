// Numbers in words and files: nothing is lost, so a message never shows a value that its own limit
// would admit.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>

namespace hyperserve {

// The shortest decimal text that reads back as the same float or double; "nan", "inf", "-inf".
template <std::floating_point Number>
std::string ShortestText(Number value) {
  std::array<char, 64> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

}  // namespace hyperserve
