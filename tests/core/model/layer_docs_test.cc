// What no compiler asks of a new kind of layer: its formula in a test of nets, and its row in
// docs/MODEL_FORMAT.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "core/model/layers/layer.h"
#include "tests/testing/random_layers.h"

namespace hyperserve {
namespace {

// Every kind has an example: layers_test checks it.
std::set<std::string> Kinds() {
  std::set<std::string> kinds;
  for (const auto& example : fixture::LayerExamples()) kinds.emplace(LayerName(example.layer));
  return kinds;
}

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "conv_transpose2d": "ConvTranspose2dLayer".
std::string TypeName(const std::string& kind) {
  std::string name;
  const std::vector<std::string> words = absl::StrSplit(kind, '_');
  for (std::string word : words) {
    word[0] = absl::ascii_toupper(word[0]);
    name += word;
  }
  return name + "Layer";
}

TEST(LayerDocsTest, EveryKindHasItsFormulaInATest) {
  const std::regex of_formulas("net_.+_test[.]cc");
  std::string formulas;
  for (const auto& file : std::filesystem::directory_iterator(NET_TESTS)) {
    if (std::regex_match(file.path().filename().string(), of_formulas)) {
      formulas += TextOf(file.path());
    }
  }
  for (const std::string& kind : Kinds()) {
    EXPECT_TRUE(std::regex_search(formulas, std::regex("\\b" + TypeName(kind) + "\\b")))
        << "no tests/core/model/net_*_test.cc says what " << TypeName(kind) << " computes";
  }
}

TEST(LayerDocsTest, ThePageHasTheKindsThatThereAre) {
  const std::string page = TextOf(MODEL_FORMAT_PAGE);
  const size_t begin = page.find("| layer | fields");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("\n\n", begin);
  const std::vector<std::string> lines = absl::StrSplit(page.substr(begin, end - begin), '\n');
  std::set<std::string> rows;  // the names in the first column
  for (const std::string& line : lines) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    ASSERT_GE(cells.size(), 4u) << line;
    const std::vector<std::string> pieces = absl::StrSplit(cells[1], '`');
    for (size_t i = 1; i < pieces.size(); i += 2) rows.insert(pieces[i]);
  }
  EXPECT_EQ(rows, Kinds());
}

}  // namespace
}  // namespace hyperserve
