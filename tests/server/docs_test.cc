// docs/OPERATIONS.md lists the options and metrics of the program. HYPERSERVE_UPDATE_DOCS=1 writes
// the two tables anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "server/metrics/families.h"
#include "server/options.h"

namespace hyperserve {
namespace {

std::string MetricsMarkdown() {
  std::string table = "| metric | labels | means |\n|---|---|---|\n";
  for (const MetricFamily& family : kFamilies) {
    std::string labels;
    for (const std::string_view label : family.labels) {
      if (!label.empty()) labels += (labels.empty() ? "" : ", ") + std::string(label);
    }
    table += "| `" + std::string(family.name) + "` | " + labels + " | " + std::string(family.help) +
             " |\n";
  }
  return table;
}

// The text, with the part between "<!-- NAME -->" and the next "<!-- end -->" replaced.
std::string WithSection(const std::string& text, const std::string& name,
                        const std::string& content) {
  const std::string start = "<!-- " + name + " -->\n";
  const size_t begin = text.find(start);
  const size_t end = text.find("<!-- end -->", begin);
  if (begin == std::string::npos || end == std::string::npos) return "no section " + name;
  return text.substr(0, begin + start.size()) + content + text.substr(end);
}

TEST(Operations, TellsTheOptionsAndMetricsThatThereAre) {
  const std::string path = OPERATIONS_PAGE;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string wanted =
      WithSection(WithSection(text, "options", OptionsMarkdown()), "metrics", MetricsMarkdown());
  const char* update = std::getenv("HYPERSERVE_UPDATE_DOCS");  // NOLINT(concurrency-mt-unsafe)
  if (update != nullptr) std::ofstream(path) << wanted;
  EXPECT_EQ(text, wanted) << "HYPERSERVE_UPDATE_DOCS=1 and this test renew the page";
}

}  // namespace
}  // namespace hyperserve
