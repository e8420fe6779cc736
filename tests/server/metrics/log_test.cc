#include "server/metrics/log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hyperserve {
namespace {

using Fields = std::map<std::string, std::string>;

// A strict reader of logfmt; nullopt: the line is none, or names a key twice.
std::optional<Fields> Parse(std::string_view line) {
  Fields fields;
  size_t at = 0;
  while (at < line.size()) {
    const size_t equals = line.find('=', at);
    if (equals == line.npos) return std::nullopt;
    const std::string key(line.substr(at, equals - at));
    if (key.empty() || key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != key.npos) {
      return std::nullopt;
    }
    std::string value;
    at = equals + 1;
    if (at < line.size() && line[at] == '"') {
      for (++at; at < line.size() && line[at] != '"'; ++at) {
        if (static_cast<unsigned char>(line[at]) < 0x20) return std::nullopt;
        if (line[at] == '\\') value += line[at++];
        value += line[at];
      }
      if (at++ >= line.size()) return std::nullopt;
    } else {
      const size_t end = std::min(line.find(' ', at), line.size());
      value = line.substr(at, end - at);
      if (value.empty() || value.find_first_of("\"=\n") != value.npos) return std::nullopt;
      at = end;
    }
    if (at < line.size() && line[at++] != ' ') return std::nullopt;
    if (!fields.emplace(key, value).second) return std::nullopt;
  }
  return fields;
}

TEST(LogLine, IsLogfmtWhateverStandsInTheValues) {
  for (const std::string value : {"plain", "", " ", "x\" code=OK model=fake", "a=b", "two\nlines",
                                  "\\", "\\\"", "gr\xf6sse", "\xed\xa0\x80", "\x7f\x01\x1b[31m",
                                  "gr\xc3\xb6\xc3\x9f"
                                  "e",
                                  "\xf0\x9f\x8c\x8a", "\xc3"}) {
    LogLine line(LogFormat::kLogfmt);
    line.Add("call", "Classify").Add("id", value).Add("rows", 3).Add("code", "NOT_FOUND");
    const auto fields = Parse(line.text());
    ASSERT_TRUE(fields) << line.text();
    EXPECT_EQ(fields->size(), 4u) << line.text();
    EXPECT_EQ(fields->at("code"), "NOT_FOUND");
  }
}

TEST(LogLine, PlainValuesStayPlain) {
  LogLine line(LogFormat::kLogfmt);
  line.Add("model", "fashion")
      .Add("plan", "hyper_heun:1/fast")
      .Add("rows", 256)
      .Add("seconds", 0.5);
  EXPECT_EQ(line.text(), "model=fashion plan=hyper_heun:1/fast rows=256 seconds=0.5");
}

TEST(LogLine, IsJson) {
  LogLine line(LogFormat::kJson);
  line.Add("id", "x\" y\n\xf6")
      .Add("rows", -1)
      .Add("seconds", std::numeric_limits<double>::infinity());
  EXPECT_EQ(line.text(), R"("id":"x\" y\n\ufffd","rows":-1,"seconds":null)");
}

TEST(Log, ToldBeforehandWhatItWouldNotWrite) {
  EXPECT_FALSE(Logs(LogLevel::kDebug));  // the level is info until SetUpLog
  EXPECT_TRUE(Logs(LogLevel::kInfo));
  EXPECT_TRUE(Logs(LogLevel::kError));
}

TEST(CrowdedEvents, OneLineASecondStandsForAll) {
  CrowdedEvents events;
  const std::chrono::steady_clock::time_point begin{std::chrono::seconds(100)};
  EXPECT_TRUE(events.Note(begin).log);
  for (int i = 1; i < 1000; ++i)
    EXPECT_FALSE(events.Note(begin + std::chrono::milliseconds(i)).log);
  const CrowdedEvents::Turn next = events.Note(begin + std::chrono::seconds(1));
  EXPECT_TRUE(next.log);
  EXPECT_EQ(next.others, 999);
  EXPECT_EQ(events.Note(begin + std::chrono::seconds(9)).others, 0);
}

}  // namespace
}  // namespace hyperserve
