// Escapes foreign text to one line, for logs and reports that print one event on each line. Foreign
// text is what we did not write: a parser's message, a name from a request or a file. Pure; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hyperserve {

// Joins each run of white space into one space, removes it at both ends, and writes other control
// characters of ASCII as \x1b. Bytes above 0x7f stay as they are. Never fails.
inline std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isspace(byte)) {
      if (!line.empty() && line.back() != ' ') line += ' ';
    } else if (absl::ascii_iscntrl(byte)) {
      absl::StrAppend(&line, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      line += c;
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace hyperserve
