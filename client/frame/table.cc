#include "client/frame/table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace hyperserve {

std::string TextTable::Print() const {
  std::vector<size_t> widths;
  for (const auto& cells : lines_) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text;
  for (const auto& cells : lines_) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      double number = 0;
      const bool right = cells[i] == "-" || absl::SimpleAtod(cells[i], &number);
      const std::string padding(widths[i] - cells[i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += right ? padding + cells[i] : cells[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Counted(int64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", Absl(noun), count == 1 ? "" : "s");
}

std::string ShortNumber(double value) {
  return std::isnan(value) ? "-" : absl::StrFormat("%.4g", value);
}

}  // namespace hyperserve
