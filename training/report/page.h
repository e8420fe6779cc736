// The page of a report: what was measured of a model and its solvers, as one HTML file that needs
// no other. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/repository/calibration.h"
#include "core/model/spec/spec.h"
#include "training/report/chart.h"

namespace hyperserve {

// A learned plan beside the best classical plan of no greater MACs, on the same rows.
struct Contest {
  int evaluations = 0;                // n
  std::string rival;                  // its spelling
  double error = 0, rival_error = 0;  // means
  double p99 = 0, rival_p99 = 0;      // 99th percentiles
  double macs = 0;                    // of the learned plan
  std::vector<double> row_errors = {}, rival_row_errors = {};

  // Below 1 the learned plan wins.
  double ratio() const { return error / rival_error; }
};

// The largest ratio that the project asks of a learned solver of n evaluations; nullopt: no bar at
// this n.
std::optional<double> RatioBar(ModelKind kind, int evaluations);

// The coefficients of one table of a learned solver, as cells.
struct SolverTableRows {
  int evaluations = 0;
  std::string coefficients;  // "map"
  HeatRows rows;
};

// Points that a flow made under one plan.
struct Samples {
  std::string plan;
  std::vector<ChartPoint> points;
};

// All that a page shows. Lists may be empty: their part of the page is left out.
struct ReportContent {
  std::string name;
  ModelKind kind = ModelKind::kClassifier;
  Calibration calibration;                 // of the model
  std::vector<PlanCalibration> corrected;  // the plans of the generations that are served
  int rows = 0;                            // rows of the contests
  std::vector<Contest> contests;
  std::vector<SolverTableRows> tables;
  std::vector<Samples> samples;
  // By the folder of a generation ("learned/1").
  std::map<std::string, std::map<std::string, std::string>> provenance;
};

// The whole file: UTF-8, with every foreign text escaped. The same bytes for the same content.
std::string ReportPage(const ReportContent& content);
// The page's first chart, error against MACs, as an SVG file of its own.
std::string FrontPicture(const ReportContent& content);

}  // namespace hyperserve
