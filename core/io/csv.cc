#include "core/io/csv.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

using Fields = std::vector<absl::string_view>;

char SeparatorOf(absl::string_view line) {
  for (const char separator : {';', '\t', ','}) {
    if (line.find(separator) != line.npos) return separator;
  }
  return ' ';
}

Fields FieldsOf(absl::string_view line, char separator) {
  Fields fields = separator == ' '
                      ? Fields(absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty()))
                      : Fields(absl::StrSplit(line, separator));
  for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
  return fields;
}

bool IsNumber(absl::string_view field) {
  double number = 0;
  return absl::SimpleAtod(field, &number);
}

absl::Status LineError(int64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, " ", what));
}

std::string CountText(size_t count) {
  return absl::StrCat(count, count == 1 ? " number" : " numbers");
}

}  // namespace

absl::StatusOr<CsvRows> ParseCsv(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvRows csv;
  std::vector<double> numbers;
  std::optional<char> separator;
  size_t columns = 0;
  int64_t rows = 0, line_number = 0;
  for (absl::string_view line : absl::StrSplit(Absl(text), '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const bool first = !separator.has_value();
    if (first) separator = SeparatorOf(line);
    const Fields fields = FieldsOf(line, *separator);
    if (first && std::ranges::none_of(fields, IsNumber)) {
      for (const absl::string_view field : fields) csv.names.emplace_back(field);
      continue;
    }
    // A first line with some numbers is a row with a mistake, not a header.
    if (!std::ranges::all_of(fields, IsNumber)) return LineError(line_number, "is not numbers");
    if (rows > 0 && fields.size() != columns) {
      return LineError(line_number, absl::StrCat("has ", CountText(fields.size()),
                                                 ", the ones before have ", columns));
    }
    columns = fields.size();
    ++rows;
    for (const absl::string_view field : fields) {
      (void)absl::SimpleAtod(field, &numbers.emplace_back());
    }
  }
  csv.rows = HostTensor::Zeros(Dtype::kF64, {rows, static_cast<int64_t>(columns)});
  std::ranges::copy(numbers, csv.rows.as<double>().begin());
  return csv;
}

}  // namespace hyperserve
