#include "training/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace hyperserve {
namespace {

constexpr double kWidth = 560, kHeight = 340, kLeft = 62, kRight = 12, kTop = 12, kBottom = 44;
constexpr double kFloor = 1e-9;  // the least value of a histogram

// One axis of decades, from a place to another.
struct LogAxis {
  double low = 0, high = 1;   // decimal logarithms, whole numbers
  double begin = 0, end = 1;  // places
  double Place(double value) const {
    return begin + (std::log10(value) - low) / (high - low) * (end - begin);
  }
};

LogAxis AxisOf(const std::vector<double>& values, double begin, double end) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = std::floor(std::log10(*least));
  return {low, std::max(low + 1, std::ceil(std::log10(*most))), begin, end};
}

std::string Line(double x1, double y1, double x2, double y2) {
  return absl::StrFormat("<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#ddd\"/>", x1, y1, x2, y2);
}

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, y, anchor,
                         Escaped(text));
}

std::string Decades(const LogAxis& axis, bool across) {
  std::string marks;
  for (double decade = axis.low; decade <= axis.high; ++decade) {
    const double place = axis.Place(std::pow(10.0, decade));
    const std::string label = absl::StrFormat("1e%.0f", decade);
    marks += across ? Line(place, kTop, place, kHeight - kBottom) +
                          Text(place, kHeight - kBottom + 16, "middle", label)
                    : Line(kLeft, place, kWidth - kRight, place) +
                          Text(kLeft - 6, place + 4, "end", label);
  }
  return marks;
}

std::string Frame(double width, double height, const std::string& content) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\">%s</svg>\n",
                         width, height, width, height, content);
}

std::string Names(const std::vector<ChartSeries>& series) {
  std::string names;
  double y = kTop + 16;
  for (const ChartSeries& one : series) {
    names += absl::StrFormat("<g fill=\"%s\">%s</g>", one.colour,
                             Text(kWidth - kRight - 8, y, "end", one.name));
    y += 16;
  }
  return names;
}

std::string Joined(const std::vector<std::array<double, 2>>& places, const std::string& colour) {
  std::string path;
  for (const auto& [x, y] : places) {
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", x, y);
  }
  return absl::StrFormat("<path d=\"%s\" fill=\"none\" stroke=\"%s\"/>", path, colour);
}

std::string Dot(double x, double y, double radius, const std::string& colour,
                const std::string& title) {
  const std::string start = absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"", x, y, radius, colour);
  if (title.empty()) return start + "/>";
  return absl::StrFormat("%s><title>%s</title></circle>", start, Escaped(title));
}

bool Shown(const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && point.x > 0 && point.y > 0;
}

}  // namespace

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string LogChart(const std::string& x_label, const std::string& y_label,
                     const std::vector<ChartSeries>& series) {
  std::vector<double> xs, ys;
  for (const ChartSeries& one : series) {
    for (const ChartPoint& point : one.points) {
      if (!Shown(point)) continue;
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (xs.empty()) return "";
  const LogAxis x = AxisOf(xs, kLeft, kWidth - kRight), y = AxisOf(ys, kHeight - kBottom, kTop);
  std::string content = Decades(x, true) + Decades(y, false);
  for (const ChartSeries& one : series) {
    std::vector<std::array<double, 2>> places;
    std::string dots;
    for (const ChartPoint& point : one.points) {
      if (!Shown(point)) continue;
      places.push_back({x.Place(point.x), y.Place(point.y)});
      dots += Dot(places.back()[0], places.back()[1], 3.5, one.colour, point.title);
    }
    if (one.joined && !places.empty()) content += Joined(places, one.colour);
    content += dots;
  }
  content += Names(series) + Text((kLeft + kWidth) / 2, kHeight - 8, "middle", x_label);
  content += absl::StrFormat("<g transform=\"translate(12 %.0f) rotate(-90)\">%s</g>", kHeight / 2,
                             Text(0, 0, "middle", y_label));
  return Frame(kWidth, kHeight, content);
}

std::string LineChart(const std::string& x_label, const std::string& y_label,
                      const std::vector<ChartSeries>& series) {
  constexpr int kMarks = 4;
  std::vector<double> xs, ys;
  for (const ChartSeries& one : series) {
    for (const ChartPoint& point : one.points) {
      if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (xs.empty()) return "";
  const auto [left, right] = std::ranges::minmax(xs);
  const auto [low, high] = std::ranges::minmax(ys);
  const auto place = [](double value, double least, double most, double begin, double end) {
    return begin + (value - least) / std::max(most - least, 1e-12) * (end - begin);
  };
  const auto x = [&](double value) { return place(value, left, right, kLeft, kWidth - kRight); };
  const auto y = [&](double value) { return place(value, low, high, kHeight - kBottom, kTop); };
  std::string content;
  for (int i = 0; i <= kMarks; ++i) {
    const double across = left + (right - left) * i / kMarks, up = low + (high - low) * i / kMarks;
    content += Line(x(across), kTop, x(across), kHeight - kBottom) +
               Text(x(across), kHeight - kBottom + 16, "middle", absl::StrFormat("%.3g", across)) +
               Line(kLeft, y(up), kWidth - kRight, y(up)) +
               Text(kLeft - 6, y(up) + 4, "end", absl::StrFormat("%.3g", up));
  }
  for (const ChartSeries& one : series) {
    std::vector<std::array<double, 2>> places;
    for (const ChartPoint& point : one.points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) {
        places.push_back({x(point.x), y(point.y)});
      }
    }
    content += Joined(places, one.colour);
  }
  content += Names(series) + Text((kLeft + kWidth) / 2, kHeight - 8, "middle", x_label);
  content += absl::StrFormat("<g transform=\"translate(12 %.0f) rotate(-90)\">%s</g>", kHeight / 2,
                             Text(0, 0, "middle", y_label));
  return Frame(kWidth, kHeight, content);
}

std::string CloudChart(const std::vector<ChartPoint>& points, double limit,
                       const std::string& colour) {
  constexpr double kSide = 300;
  std::string content =
      absl::StrFormat("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fafafa\"/>", kSide, kSide);
  const double scale = kSide / (2 * limit);
  std::string dots;  // one path for all: a file of thousands of elements is large and slow to draw
  for (const ChartPoint& point : points) {
    if (!(std::abs(point.x) <= limit && std::abs(point.y) <= limit)) continue;
    absl::StrAppendFormat(&dots, "M%.0f %.0fh0", (point.x + limit) * scale,
                          (limit - point.y) * scale);
  }
  absl::StrAppendFormat(
      &content, "<path d=\"%s\" stroke=\"%s\" stroke-width=\"2.4\" stroke-linecap=\"round\"/>",
      dots, colour);
  return Frame(kSide, kSide, content);
}

std::string LogHistogram(const std::vector<ChartSeries>& series) {
  std::vector<double> values;
  for (const ChartSeries& one : series) {
    for (const ChartPoint& point : one.points) {
      if (std::isfinite(point.x)) values.push_back(std::max(point.x, kFloor));
    }
  }
  if (values.empty()) return "";
  const LogAxis x = AxisOf(values, kLeft, kWidth - kRight);
  const size_t bins = static_cast<size_t>(2 * (x.high - x.low));
  std::vector<std::vector<double>> counts;
  double most = 1;
  for (const ChartSeries& one : series) {
    std::vector<double>& bin = counts.emplace_back(bins);
    for (const ChartPoint& point : one.points) {
      if (!std::isfinite(point.x)) continue;
      const double place = 2 * (std::log10(std::max(point.x, kFloor)) - x.low);
      most = std::max(most, ++bin[std::min(bins - 1, static_cast<size_t>(place))]);
    }
  }
  std::string content = Decades(x, true);
  const double bottom = kHeight - kBottom;
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<std::array<double, 2>> outline = {{x.begin, bottom}};
    for (size_t bin = 0; bin < bins; ++bin) {
      const double height = bottom - counts[i][bin] / most * (bottom - kTop);
      const double width = (x.end - x.begin) / static_cast<double>(bins);
      outline.push_back({x.begin + width * static_cast<double>(bin), height});
      outline.push_back({x.begin + width * static_cast<double>(bin + 1), height});
    }
    outline.push_back({x.end, bottom});
    content += Joined(outline, series[i].colour);
  }
  return Frame(kWidth, kHeight,
               content + Names(series) +
                   Text((kLeft + kWidth) / 2, kHeight - 8, "middle", "relative error of a row"));
}

std::string HeatMap(const HeatRows& rows) {
  constexpr double kCell = 46, kName = 40;
  double most = 1e-12;
  for (const auto& row : rows.values) {
    for (const double value : row) {
      if (std::isfinite(value)) most = std::max(most, std::abs(value));
    }
  }
  std::string content;
  for (size_t j = 0; j < rows.columns.size(); ++j) {
    content += Text(kName + kCell * (static_cast<double>(j) + 0.5), 14, "middle", rows.columns[j]);
  }
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const double y = 20 + 24 * static_cast<double>(i);
    content += Text(kName - 6, y + 16, "end", rows.names[i]);
    for (size_t j = 0; j < rows.values[i].size(); ++j) {
      const double value = rows.values[i][j];
      if (!std::isfinite(value)) continue;
      const double x = kName + kCell * static_cast<double>(j);
      content += absl::StrFormat(
          "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"24\" fill=\"%s\" "
          "fill-opacity=\"%.2f\"/>",
          x, y, kCell, value > 0 ? "#c0392b" : "#2471a3", 0.75 * std::abs(value) / most);
      content += Text(x + kCell / 2, y + 16, "middle", absl::StrFormat("%.3f", value));
    }
  }
  return Frame(kName + kCell * static_cast<double>(rows.columns.size()) + 4,
               24 + 24 * static_cast<double>(rows.values.size()), content);
}

}  // namespace hyperserve
