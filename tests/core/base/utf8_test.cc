#include "core/base/utf8.h"

#include <gtest/gtest.h>

namespace hyperserve {
namespace {

TEST(Utf8, KeepsWhatIsValid) {
  for (const char* text : {"", "plain", "gr\xc3\xb6sse", "\xe2\x82\xac", "\xf0\x9f\x99\x82"}) {
    EXPECT_EQ(Utf8(text, 100), text);
  }
}

TEST(Utf8, ReplacesEachByteThatIsNone) {
  EXPECT_EQ(Utf8("gr\xf6sse", 100), "gr?sse");
  EXPECT_EQ(Utf8("\xc0\xaf", 100), "??");       // longer than it must be
  EXPECT_EQ(Utf8("\xed\xa0\x80", 100), "???");  // half of a pair
  EXPECT_EQ(Utf8("\xf5\x80\x80\x80", 100), "????");
  EXPECT_EQ(Utf8("x\xe2\x82", 100), "x??");
}

TEST(Utf8, LeavesOutTheMiddleBetweenCharacters) {
  EXPECT_EQ(Utf8("0123456789abcdef", 16), "0123456789abcdef");
  EXPECT_EQ(Utf8("0123456789abcdef", 15), "01234 ... bcdef");
  EXPECT_EQ(Utf8("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", 11),
            "\xe2\x82\xac ... \xe2\x82\xac");
  EXPECT_EQ(Utf8("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", 8), " ... ") << "no half characters";
  EXPECT_EQ(Utf8("0123456789", 3), " ..");
}

}  // namespace
}  // namespace hyperserve
