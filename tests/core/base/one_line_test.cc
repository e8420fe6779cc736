#include "core/base/one_line.h"

#include <gtest/gtest.h>

namespace hyperserve {
namespace {

TEST(OneLine, WhiteSpaceIsOneSpaceAndNoneAtTheEnds) {
  EXPECT_EQ(OneLine(" \n a\r\n\t b  c\v\f"), "a b c");
  EXPECT_EQ(OneLine(""), "");
  EXPECT_EQ(OneLine("\n\n"), "");
}

TEST(OneLine, ControlCharactersAreSpelled) {
  EXPECT_EQ(OneLine({"a\x1b[31m\x7f\0z", 9}), "a\\x1b[31m\\x7f\\x00z");
}

TEST(OneLine, OtherBytesStay) { EXPECT_EQ(OneLine("na\xc3\xafve 'x'\\n"), "na\xc3\xafve 'x'\\n"); }

}  // namespace
}  // namespace hyperserve
