// Charts as inline SVG elements of an HTML page. Pure; they need no file and no script.
#pragma once

#include <string>
#include <vector>

namespace hyperserve {

// In the units of the axes, not of the picture.
struct ChartPoint {
  double x = 0, y = 0;
  std::string title = {};  // shown under the pointer; empty: none
};

// Points of one colour ("#c0392b").
struct ChartSeries {
  std::string name, colour;
  std::vector<ChartPoint> points;
  bool joined = false;  // by a line, in their order
};

// Text as it stands in HTML and SVG.
std::string Escaped(const std::string& text);

// Series over two logarithmic axes with powers of ten. Points that are not finite or not above 0
// are left out; empty where none is left.
std::string LogChart(const std::string& x_label, const std::string& y_label,
                     const std::vector<ChartSeries>& series);

// The same over two linear axes, lines without dots.
std::string LineChart(const std::string& x_label, const std::string& y_label,
                      const std::vector<ChartSeries>& series);

// Points [-limit, limit]^2 of a plane, x to the right and y upwards. Points outside are left out.
std::string CloudChart(const std::vector<ChartPoint>& points, double limit,
                       const std::string& colour);

// How many of the values lie in each half decade, one outline for each series: the x of its points
// are the values. Values below 1e-9 count as 1e-9; those that are not finite are left out.
std::string LogHistogram(const std::vector<ChartSeries>& series);

// Cells by rows, with their numbers. NaN leaves a cell empty. Red is above 0, blue below.
struct HeatRows {
  std::vector<std::string> columns;
  std::vector<std::string> names;           // of the rows
  std::vector<std::vector<double>> values;  // [rows][columns]
};
// The colours are strongest at the largest absolute value.
std::string HeatMap(const HeatRows& rows);

}  // namespace hyperserve
