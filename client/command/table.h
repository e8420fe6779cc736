// Text tables: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : lines_{std::move(header)} {}
  void Add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  std::string Print() const;

 private:
  std::vector<std::vector<std::string>> lines_;
};

// Four significant digits; "-" for NaN.
std::string ShortNumber(double value);

}  // namespace hyperserve
