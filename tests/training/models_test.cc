// The shipped models are complete, as the trainer wrote them, and agree with the documents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/io/file.h"
#include "core/model/net/model.h"
#include "core/model/repository/calibration.h"
#include "core/model/repository/repository.h"
#include "core/plan/method.h"
#include "core/plan/plan.h"

namespace hyperserve {
namespace {

const std::string kModels = HYPERSERVE_MODELS;

Calibration ReadCalibration(const std::string& folder) {
  const std::string path = folder + "/calibration.json";
  return ParseCalibration(ReadFile(path, kCalibrationBytesMax).value()).value();
}

// Every measured plan of the repository, by "model plan"; each generation is checked on the way.
std::map<std::string, PlanCalibration> MeasuredPlans() {
  std::map<std::string, PlanCalibration> plans;
  const std::vector<std::string> folders = ListModelFolders(kModels).value();
  for (const std::string& folder : folders) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    const auto model = Model::Load(folder).value();
    std::vector<Calibration> calibrations = {ReadCalibration(folder)};
    for (const MethodChoice& method : ListHypersolverMethods(folder)) {
      const std::string corrections = HypersolverFolder(folder, method);
      const std::string served =
          absl::StrCat(corrections, "/", ReadActive(corrections).value().value());
      EXPECT_TRUE(ReadGeneration(served).ok()) << served;
      EXPECT_TRUE(Hypersolver::Load(served, *model).ok()) << served;
      calibrations.push_back(ReadCalibration(served));
    }
    for (const Calibration& calibration : calibrations) {
      EXPECT_EQ(calibration.base_digest, model->base_digest()) << name;
      for (const PlanCalibration& plan : calibration.plans)
        plans[name + " " + PrintPlan(plan.plan)] = plan;
    }
  }
  return plans;
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  for (const absl::string_view cell : absl::StrSplit(line, '|')) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

std::string PlanText(std::string cell) {
  cell.erase(std::remove(cell.begin(), cell.end(), '`'), cell.end());
  return cell;
}

std::string Wins(const PlanCalibration& plan) {
  if (!plan.plan.hypersolved()) return "";
  return plan.wins ? "yes" : "no";
}

// Rows of docs/NUMERICS.md between these two headings.
std::vector<std::vector<std::string>> TableOf(const std::string& heading) {
  std::ifstream file(HYPERSERVE_NUMERICS);
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) inside = line.rfind("## " + heading, 0) == 0;
    if (inside && line.find('`') != std::string::npos && line[0] == '|')
      rows.push_back(Cells(line));
  }
  return rows;
}

TEST(ShippedModelsTest, DocumentedFiguresAreThoseOfTheFiles) {
  const auto plans = MeasuredPlans();
  ASSERT_GT(plans.size(), 50u);
  const std::map<std::string, std::vector<std::vector<std::string>>> classifiers = {
      {"fashion", TableOf("Fashion-MNIST")}, {"cifar", TableOf("CIFAR-10")}};
  const auto flows = TableOf("Flows");
  ASSERT_EQ(classifiers.at("fashion").size(), 10u);
  ASSERT_EQ(classifiers.at("cifar").size(), 8u);
  ASSERT_EQ(flows.size(), 24u);
  for (const auto& [name, rows] : classifiers) {
    for (const auto& row : rows) {
      const std::string where = absl::StrCat(name, " ", PlanText(row[1]));
      const PlanCalibration& plan = plans.at(where);
      EXPECT_EQ(row[2], absl::StrFormat("%.3g", plan.error_mean)) << where;
      EXPECT_EQ(row[3], absl::StrFormat("%.1f", 100 * plan.agreement)) << where;
      EXPECT_EQ(row[4], absl::StrFormat("%.3g", plan.nfe)) << where;
      EXPECT_EQ(row[5], absl::StrFormat("%.4g", plan.macs)) << where;
      EXPECT_EQ(row[6], Wins(plan)) << where;
    }
  }
  for (const auto& row : flows) {
    const PlanCalibration& plan = plans.at(row[1] + " " + PlanText(row[2]));
    EXPECT_EQ(row[3], absl::StrFormat("%.3g", plan.error_mean)) << row[1] << row[2];
    EXPECT_EQ(row[4], absl::StrFormat("%.3g", plan.error_max)) << row[1] << row[2];
    EXPECT_EQ(row[5], absl::StrFormat("%.3g", plan.nfe)) << row[1] << row[2];
    EXPECT_EQ(row[6], absl::StrFormat("%.4g", plan.macs)) << row[1] << row[2];
    EXPECT_EQ(row[7], Wins(plan)) << row[1] << row[2];
  }
}

}  // namespace
}  // namespace hyperserve
