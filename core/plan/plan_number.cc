#include "core/plan/plan_number.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hyperserve {
namespace {

// d1.d2d3... * 10^exponent, with the shortest digits that identify a positive double.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

Decimal ShortestDecimal(double value) {
  std::array<char, 40> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  Decimal decimal;
  for (const char c : text.substr(0, e)) {
    if (c != '.') decimal.digits += c;
  }
  const char* first = text.data() + e + 1;
  if (*first == '+') ++first;  // from_chars takes no plus
  std::from_chars(first, text.data() + text.size(), decimal.exponent);
  return decimal;
}

std::string Scientific(const Decimal& decimal) {
  std::string text = decimal.digits.substr(0, 1);
  if (decimal.digits.size() > 1) text += "." + decimal.digits.substr(1);
  return text + "e" + std::to_string(decimal.exponent);
}

}  // namespace

std::string PrintScientific(double value) { return Scientific(ShortestDecimal(value)); }

std::string PrintDecimal(double value, int shift) {
  Decimal decimal = ShortestDecimal(value);
  decimal.exponent += shift;
  const int count = static_cast<int>(decimal.digits.size());
  if (decimal.exponent < -5 || decimal.exponent > 15) return Scientific(decimal);
  if (decimal.exponent < 0) {
    return "0." + std::string(static_cast<size_t>(-decimal.exponent - 1), '0') + decimal.digits;
  }
  const int whole = decimal.exponent + 1;
  if (count <= whole) return decimal.digits + std::string(static_cast<size_t>(whole - count), '0');
  return decimal.digits.substr(0, static_cast<size_t>(whole)) + "." +
         decimal.digits.substr(static_cast<size_t>(whole));
}

std::optional<double> ParsePositive(std::string_view text, int shift) {
  const size_t e = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, e);
  if (mantissa.empty() || mantissa.find_first_not_of("0123456789.") != mantissa.npos) {
    return std::nullopt;
  }
  int exponent = 0;
  if (e != text.npos) {
    std::string_view rest = text.substr(e + 1);
    if (rest.starts_with('+')) rest.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), exponent);
    if (error != std::errc() || end != rest.data() + rest.size() || rest.starts_with("+") ||
        std::abs(exponent) > 100000) {
      return std::nullopt;
    }
  }
  const std::string shifted = std::string(mantissa) + "e" + std::to_string(exponent + shift);
  double value = 0.0;
  const char* const last = shifted.data() + shifted.size();
  const auto [end, error] = std::from_chars(shifted.data(), last, value);
  if (error != std::errc() || end != last || !std::isfinite(value) || value <= 0.0) {
    return std::nullopt;
  }
  return value;
}

}  // namespace hyperserve
