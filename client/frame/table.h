// Text tables: each column is as wide as its widest cell, and numbers are right-aligned. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyperserve {

// Used by one thread.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : lines_{std::move(header)} {}
  // One more line; it has as many cells as the header.
  void Add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  // All lines, the header first, each ending in a line break.
  std::string Print() const;

 private:
  std::vector<std::vector<std::string>> lines_;
};

// "1 row", "2 rows".
std::string Counted(int64_t count, std::string_view noun);

// Four significant digits; "-" for NaN.
std::string ShortNumber(double value);

}  // namespace hyperserve
