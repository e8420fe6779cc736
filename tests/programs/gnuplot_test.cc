#include "programs/gnuplot.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace hyperserve {
namespace {

constexpr char kPoint[] = "set terminal pngcairo size 200,200\nplot '-'\n1 1\n2 3\ne\n";

bool Installed() { return access(GNUPLOT, X_OK) == 0; }

TEST(GnuplotTest, QuotesAreDoubled) {
  EXPECT_EQ(GnuplotQuoted("plain"), "'plain'");
  EXPECT_EQ(GnuplotQuoted("o'clock \"x\""), "'o''clock \"x\"'");
}

TEST(GnuplotTest, GivesThePicture) {
  if (!Installed()) GTEST_SKIP() << "gnuplot is not installed";
  const auto png = RunGnuplot(kPoint);
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(png->substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png->substr(png->size() - 8, 4), "IEND");
}

TEST(GnuplotTest, SaysWhatWentWrong) {
  if (!Installed()) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_EQ(RunGnuplot("no such word").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(RunGnuplot("set grid").status().code(), absl::StatusCode::kInternal) << "nothing drawn";
}

TEST(GnuplotTest, SaysThatItIsNotThere) {
  // NOLINTBEGIN(concurrency-mt-unsafe): the only thread
  const std::string path = getenv("PATH");
  ASSERT_EQ(setenv("PATH", "/nowhere", 1), 0);
  const auto png = RunGnuplot(kPoint);
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  // NOLINTEND(concurrency-mt-unsafe)
  EXPECT_EQ(png.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(png.status().message().find("gnuplot is not installed"), std::string::npos);
}

}  // namespace
}  // namespace hyperserve
