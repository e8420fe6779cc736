#include "core/base/host_port.h"

#include <gtest/gtest.h>

namespace hyperserve {
namespace {

TEST(ParseHostPort, ReadsBothParts) {
  const auto parsed = ParseHostPort("[::1]:8500", 1);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->host, "[::1]");
  EXPECT_EQ(parsed->port, 8500);
  for (const char* good : {"localhost:1", "10.0.0.1:65535", "a-b.c_d:80"}) {
    EXPECT_TRUE(ParseHostPort(good, 1).ok()) << good;
  }
  for (const char* bad : {"", ":1", "host", "host:", "host:x", "host:-1", "host:65536", "host:1x",
                          "[::1]", "foo bar:1", "[]:1"}) {
    EXPECT_FALSE(ParseHostPort(bad, 0).ok()) << bad;
  }
}

TEST(ParseHostPort, AnyFreePortIsForListeners) {
  EXPECT_TRUE(ParseHostPort("[::]:0", 0).ok());
  EXPECT_FALSE(ParseHostPort("[::]:0", 1).ok());
}

}  // namespace
}  // namespace hyperserve
