#include "core/base/utf8.h"

#include <algorithm>

namespace hyperserve {
namespace {

// Bytes of the character that begins here; 0: none does (The Unicode Standard, table 3-7).
size_t CharacterBytes(std::string_view text) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return bytes;
}

std::string Valid(std::string_view text) {
  std::string valid;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(i));
    if (bytes == 0) {
      valid += '?';
    } else {
      valid += text.substr(i, bytes);
    }
    i += std::max<size_t>(bytes, 1);
  }
  return valid;
}

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string Utf8(std::string_view text, size_t bytes_max) {
  static constexpr std::string_view kLeftOut = " ... ";
  std::string valid = Valid(text);
  if (valid.size() <= bytes_max) return valid;
  const size_t half = bytes_max < kLeftOut.size() ? 0 : (bytes_max - kLeftOut.size()) / 2;
  size_t head = half, tail = valid.size() - half;
  while (head > 0 && Continues(valid[head])) --head;
  while (tail < valid.size() && Continues(valid[tail])) ++tail;
  return valid.substr(0, head) + std::string(kLeftOut.substr(0, bytes_max)) + valid.substr(tail);
}

}  // namespace hyperserve
