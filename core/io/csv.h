// Rows of numbers as text. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/io/tensor.h"

namespace hyperserve {

// What ParseCsv read. A text without rows gives [0, 0].
struct CsvRows {
  std::vector<std::string> names;  // of the columns; empty where the text has no header
  HostTensor rows;                 // F64 [rows, columns]
};

// One row in each line. The numbers are separated by commas, semicolons, tabs or blanks: by the
// first of semicolon, tab and comma that the first line holds, else by blanks. A first line without
// any number is a header; empty lines and lines that begin with # are skipped. kInvalidArgument
// names a line that is not numbers or has another length than the ones before.
absl::StatusOr<CsvRows> ParseCsv(std::string_view text);

}  // namespace hyperserve
