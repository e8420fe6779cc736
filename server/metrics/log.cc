#include "server/metrics/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hyperserve {
namespace {

constexpr std::chrono::seconds kCrowdedEvery{1};

std::atomic<LogFormat> log_format{LogFormat::kLogfmt};

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

// The bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t size = first < 0x80                    ? 1
                      : first >= 0xc2 && first < 0xe0 ? 2
                      : first >= 0xe0 && first < 0xf0 ? 3
                      : first >= 0xf0 && first < 0xf5 ? 4
                                                      : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, a surrogate, or beyond the last character.
  if (size == 3 && first == 0xe0 && byte(1) < 0xa0) return 0;
  if (size == 3 && first == 0xed && byte(1) >= 0xa0) return 0;
  if (size == 4 && first == 0xf0 && byte(1) < 0x90) return 0;
  if (size == 4 && first == 0xf4 && byte(1) >= 0x90) return 0;
  return size;
}

// As a JSON string, which is a logfmt string too. Bytes that are no UTF-8 become U+FFFD.
std::string Quoted(std::string_view value) {
  std::string quoted = "\"";
  while (!value.empty()) {
    const size_t size = CharacterBytes(value);
    const auto first = static_cast<unsigned char>(value.front());
    if (size == 0) {
      quoted += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      quoted += {'\\', static_cast<char>(first)};
    } else if (first == '\n') {
      quoted += "\\n";
    } else if (first < 0x20 || first == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\u%04x", first);
    } else {
      quoted += value.substr(0, size);
    }
    value.remove_prefix(std::max<size_t>(size, 1));
  }
  return quoted + "\"";
}

bool IsPlain(std::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](char letter) {
    return letter > ' ' && letter <= '~' && letter != '"' && letter != '=' && letter != '\\';
  });
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

LogLine& LogLine::AddBare(std::string_view key, std::string_view value) {
  if (format_ == LogFormat::kLogfmt) {
    absl::StrAppend(&text_, text_.empty() ? "" : " ", Text(key), "=", Text(value));
  } else {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", "\"", Text(key), "\":", Text(value));
  }
  return *this;
}

LogLine& LogLine::Add(std::string_view key, std::string_view value) {
  const bool bare = format_ == LogFormat::kLogfmt && IsPlain(value);
  return AddBare(key, bare ? std::string(value) : Quoted(value));
}

LogLine& LogLine::Add(std::string_view key, double value) {
  // JSON has no other numbers.
  return std::isfinite(value) ? AddBare(key, absl::StrFormat("%.6g", value)) : AddBare(key, "null");
}

void SetUpLog(const std::string& level, LogFormat format) {
  log_format = format;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("hyperserve"));
  spdlog::set_pattern(format == LogFormat::kJson
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                          : "time=%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

bool Logs(LogLevel level) { return spdlog::should_log(LevelOf(level)); }

LogLine NewLogLine() { return LogLine(log_format); }

void Log(LogLevel level, const LogLine& line) { spdlog::log(LevelOf(level), "{}", line.text()); }

CrowdedEvents::Turn CrowdedEvents::Note(std::chrono::steady_clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now < next_) {
    ++others_;
    return {};
  }
  next_ = now + kCrowdedEvery;
  return {.log = true, .others = std::exchange(others_, 0)};
}

}  // namespace hyperserve
