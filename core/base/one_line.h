// Words of others (a parser that quotes a file over several lines, names that hold line breaks) on
// one line, where a line is one problem or one event.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hyperserve {

// White space of any length becomes one space, none at the ends; other control characters are
// spelled \x1b.
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
