// What the commands print: JSON, tables, CSV, percentiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "client/frame/json_writer.h"
#include "client/frame/percentile.h"
#include "client/frame/rows.h"
#include "client/frame/table.h"
#include "core/base/shortest_text.h"
#include "core/io/tensor.h"

namespace hyperserve {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(JsonWriter, NestsAndQuotes) {
  JsonWriter json;
  json.BeginObject().Field("a", 1).Field("b", "x\"\\\n\x01").Key("c").BeginArray().EndArray();
  json.Key("d").BeginArray().Value(true).BeginObject().EndObject().Value(kNan).EndArray();
  json.Field("e", std::vector<double>{0.1, 2}).EndObject();
  EXPECT_EQ(json.Take(),
            R"({"a":1,"b":"x\"\\\u000a\u0001","c":[],"d":[true,{},null],"e":[0.1,2]})");
  EXPECT_EQ(json.Take(), "");
}

TEST(JsonWriter, TensorsNestByShape) {
  HostTensor tensor = HostTensor::Zeros(Dtype::kF32, {2, 1, 2});
  tensor.as<float>()[1] = 0.1f;
  tensor.as<float>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(JsonWriter().Value(tensor).Take(), "[[[0,0.1]],[[0,null]]]");
  EXPECT_EQ(JsonWriter().Value(HostTensor::Zeros(Dtype::kI64, {0, 3})).Take(), "[]");
}

TEST(ShortestText, ReadsBackTheSame) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const double wide = std::ldexp(static_cast<double>(random()), static_cast<int>(i) - 500);
    EXPECT_EQ(std::stod(ShortestText(wide)), wide);
    const auto narrow = static_cast<float>(std::ldexp(static_cast<double>(random()), i % 60 - 60));
    EXPECT_EQ(std::stof(ShortestText(narrow)), narrow);
  }
  EXPECT_EQ(ShortestText(0.1f), "0.1");
  EXPECT_EQ(ShortestText(-1.0), "-1");
}

TEST(Percentile, IsAValueThatWasMeasured) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Percentile(values, 0.5), 50);
  EXPECT_EQ(Percentile(values, 0.99), 99);
  EXPECT_EQ(Percentile(values, 1.0), 100);
  EXPECT_EQ(Percentile(values, 0.0), 1);
  EXPECT_EQ(Percentile({3}, 0.99), 3);
  EXPECT_TRUE(std::isnan(Percentile({}, 0.5)));
}

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(Counted(0, "row"), "0 rows");
  EXPECT_EQ(Counted(1, "row"), "1 row");
  EXPECT_EQ(Counted(2, "row"), "2 rows");
}

TEST(TextTable, AlignsNumbersRight) {
  TextTable table({"plan", "NFE"});
  table.Add({"euler:1", "1"});
  table.Add({"heun:12", ShortNumber(kNan)});
  table.Add({"x", "1024"});
  EXPECT_EQ(table.Print(), "plan     NFE\neuler:1     1\nheun:12     -\nx        1024\n");
}

TEST(PrintCsv, OneLineARow) {
  HostTensor rows = HostTensor::Zeros(Dtype::kF32, {2, 2});
  rows.as<float>()[1] = 0.1f;
  HostTensor extra = HostTensor::Zeros(Dtype::kF64, {2});
  extra.as<double>()[1] = -2.5;
  EXPECT_EQ(PrintCsv({"x0", "x1"}, rows, HostTensor()), "x0,x1\n0,0.1\n0,0\n");
  EXPECT_EQ(PrintCsv({"x0", "x1", "d"}, rows, extra), "x0,x1,d\n0,0.1,0\n0,0,-2.5\n");
}

}  // namespace
}  // namespace hyperserve
