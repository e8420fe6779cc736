// Numbers as plans spell them. Printers and parser are inverses: a positive finite double prints as
// the shortest text that reads back as the same double. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hyperserve {

// Always with an exponent, without leading zeros or a plus sign: "1e0", "5e-4", "2.5e10".
// Precondition: value is positive and finite.
std::string PrintScientific(double value);

// value * 10^shift. The shift moves the decimal point of the text, so it is exact. Without an
// exponent where the number stays short: "0.75", "2", "1e-20". Precondition: value is positive and
// finite.
std::string PrintDecimal(double value, int shift = 0);

// The whole text as a positive finite double, times 10^shift, rounded once. nullopt for any other
// text: signs, blanks, "inf", numbers that overflow or round to zero.
std::optional<double> ParsePositive(std::string_view text, int shift = 0);

}  // namespace hyperserve
