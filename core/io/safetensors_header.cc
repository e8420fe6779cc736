#include "core/io/safetensors_header.h"

#include <charconv>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"

namespace hyperserve {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

void AppendUtf8(uint32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// A cursor over the text. Every read checks for the end of the text first.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  absl::Status Error(std::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("header: expected ", Absl(expected), " at byte ", at_));
  }

  // Skips blanks, then takes `c` if it comes next.
  bool Take(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    return Take(c) ? absl::OkStatus() : Error(std::string{'\'', c, '\''});
  }

  absl::Status ExpectEnd() {
    SkipBlanks();
    return at_ == text_.size() ? absl::OkStatus() : Error("the end of the header");
  }

  absl::StatusOr<int64_t> Integer() {
    SkipBlanks();
    int64_t value = 0;
    const char* const first = text_.data() + at_;
    const char* const last = text_.data() + text_.size();
    const auto [end, error] = std::from_chars(first, last, value);
    const bool leading_zero = end - first > 1 && *first == '0';
    if (error != std::errc() || *first == '-' || leading_zero) {
      return Error("an integer from 0 to 2^63 - 1");
    }
    at_ += static_cast<size_t>(end - first);
    return value;
  }

  absl::StatusOr<std::string> String() {
    HS_RETURN_IF_ERROR(Expect('"'));
    std::string value;
    while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x20) {
      const char c = text_[at_++];
      if (c == '"') return value;
      if (c == '\\') {
        HS_RETURN_IF_ERROR(Escape(value));
      } else {
        value += c;
      }
    }
    return Error("the end of a string");
  }

  // Reads {"key": value, ...}; the function `value` reads the part after each colon. A key that
  // stands twice is an error.
  absl::Status Object(const std::function<absl::Status(const std::string& key)>& value) {
    HS_RETURN_IF_ERROR(Expect('{'));
    if (Take('}')) return absl::OkStatus();
    std::map<std::string, bool> seen;
    do {
      HS_ASSIGN_OR_RETURN(const std::string key, String());
      if (!seen.emplace(key, true).second) return Error("'" + key + "' only once");
      HS_RETURN_IF_ERROR(Expect(':'));
      HS_RETURN_IF_ERROR(value(key));
    } while (Take(','));
    return Expect('}');
  }

  absl::StatusOr<std::vector<int64_t>> Integers() {
    HS_RETURN_IF_ERROR(Expect('['));
    std::vector<int64_t> values;
    if (Take(']')) return values;
    do {
      HS_ASSIGN_OR_RETURN(values.emplace_back(), Integer());
    } while (Take(','));
    HS_RETURN_IF_ERROR(Expect(']'));
    return values;
  }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  absl::StatusOr<uint32_t> HexUnit() {
    uint32_t unit = 0;
    const char* const first = text_.data() + at_;
    if (text_.size() - at_ < 4 || std::from_chars(first, first + 4, unit, 16).ptr != first + 4) {
      return Error("four hexadecimal digits");
    }
    at_ += 4;
    return unit;
  }

  // Reads the rest of an escape, after its backslash.
  absl::Status Escape(std::string& value) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) return Error("an escape");
    const char letter = text_[at_++];
    if (const size_t i = kLetters.find(letter); i != kLetters.npos) {
      value += kMeanings[i];
      return absl::OkStatus();
    }
    if (letter != 'u') return Error("an escape");
    HS_ASSIGN_OR_RETURN(uint32_t code, HexUnit());
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") return Error("the second half of a surrogate pair");
      at_ += 2;
      HS_ASSIGN_OR_RETURN(const uint32_t low, HexUnit());
      if (low < 0xDC00 || low >= 0xE000) return Error("the second half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return Error("the first half of a surrogate pair");
    }
    AppendUtf8(code, value);
    return absl::OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
};

absl::StatusOr<SafetensorsEntry> ReadEntry(Reader& reader) {
  SafetensorsEntry entry;
  int fields = 0;
  HS_RETURN_IF_ERROR(reader.Object([&](const std::string& key) -> absl::Status {
    ++fields;
    if (key == "dtype") {
      HS_ASSIGN_OR_RETURN(const std::string name, reader.String());
      const std::optional<Dtype> dtype = DtypeFromName(name);
      if (!dtype) return reader.Error("a dtype of " + DtypeNames() + " (found " + name + ")");
      entry.dtype = *dtype;
      return absl::OkStatus();
    }
    if (key == "shape") {
      HS_ASSIGN_OR_RETURN(entry.shape, reader.Integers());
      return absl::OkStatus();
    }
    if (key != "data_offsets") return reader.Error("dtype, shape or data_offsets");
    HS_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, reader.Integers());
    if (offsets.size() != 2) return reader.Error("two data_offsets");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    return absl::OkStatus();
  }));
  if (fields != 3) return reader.Error("each of dtype, shape and data_offsets");
  return entry;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json) {
  SafetensorsHeader header;
  Reader reader(json);
  HS_RETURN_IF_ERROR(reader.Object([&](const std::string& name) -> absl::Status {
    if (name != kMetadata) {
      absl::StatusOr<SafetensorsEntry> entry = ReadEntry(reader);
      if (!entry.ok()) return Annotate(entry.status(), "tensor '" + name + "'");
      header.tensors.emplace(name, *std::move(entry));
      return absl::OkStatus();
    }
    return reader.Object([&](const std::string& key) -> absl::Status {
      HS_ASSIGN_OR_RETURN(header.metadata[key], reader.String());
      return absl::OkStatus();
    });
  }));
  HS_RETURN_IF_ERROR(reader.ExpectEnd());
  return header;
}

std::string PrintSafetensorsHeader(const SafetensorsHeader& header) {
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : header.metadata) {
      pairs.push_back(Quoted(key) + ":" + Quoted(value));
    }
    entries.push_back(absl::StrCat(Quoted(kMetadata), ":{", absl::StrJoin(pairs, ","), "}"));
  }
  for (const auto& [name, entry] : header.tensors) {
    entries.push_back(absl::StrCat(Quoted(name), ":{\"dtype\":\"", Absl(DtypeName(entry.dtype)),
                                   "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                                   "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}"));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ","), "}");
}

}  // namespace hyperserve
