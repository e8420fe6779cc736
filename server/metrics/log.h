// The daemon's log: one event a line on stderr, each a list of fields. Every line parses as logfmt
// (or is a JSON object), whatever stands in the values: a client cannot forge a field. Thread-safe.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace hyperserve {

// By rising weight: a level that is on turns on all above it.
enum class LogLevel { kDebug, kInfo, kWarn, kError };
// One line an event in both.
enum class LogFormat { kLogfmt, kJson };

// The fields of one event, in the order of Add. Keys are ours: letters and underscores. Values may
// be any bytes: they are quoted and escaped as the format wants. Used by one thread.
class LogLine {
 public:
  explicit LogLine(LogFormat format) : format_(format) {}
  LogLine& Add(std::string_view key, std::string_view value);
  LogLine& Add(std::string_view key, const char* value) {
    return Add(key, std::string_view(value));
  }
  // Six significant digits; null where it is not finite.
  LogLine& Add(std::string_view key, double value);
  template <std::integral Integer>
  LogLine& Add(std::string_view key, Integer value) {
    return AddBare(key, std::to_string(value));
  }
  // Without the end of the line; of JSON without braces.
  const std::string& text() const { return text_; }

 private:
  LogLine& AddBare(std::string_view key, std::string_view value);

  const LogFormat format_;
  std::string text_;
};

// Sets the level (debug, info, warn, error) and the format. Call it once, before other threads log.
void SetUpLog(const std::string& level, LogFormat format);
// Would Log write a line of this level? Else the caller need not make it.
bool Logs(LogLevel level);
// An empty line in the format of the log.
LogLine NewLogLine();
// Writes the line whole, with time and level, if the level is on; waits where stderr does. A line
// that cannot be written is lost: nothing else of the daemon depends on its log.
void Log(LogLevel level, const LogLine& line);

// Sums up events that come in crowds: one line a second stands for all of them.
class CrowdedEvents {
 public:
  // The answer to one Note.
  struct Turn {
    bool log = false;    // this event is to be logged
    int64_t others = 0;  // those since the last line that were not
  };
  // One more event, at `now`. Thread-safe: of events at the same time one is to be logged.
  Turn Note(std::chrono::steady_clock::time_point now);

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_;  // guarded by mutex_, as the count
  int64_t others_ = 0;
};

}  // namespace hyperserve
