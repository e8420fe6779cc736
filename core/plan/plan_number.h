// Numbers as plans spell them. Printers and parsers are inverses: every positive finite double
// prints as the shortest text that reads back as the same double.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hyperserve {

// Always with an exponent, without leading zeros or a plus sign: "1e0", "5e-4", "2.5e10".
std::string PrintScientific(double value);

// value * 10^shift, the shift done on the decimal text and so exactly: "0.75", "2", "1e-20".
// Without an exponent where that stays readable.
std::string PrintDecimal(double value, int shift = 0);

// The whole text as a positive finite double times 10^shift, rounded once; nullopt for anything
// else (signs, infinities, blanks, what overflows or vanishes).
std::optional<double> ParsePositive(std::string_view text, int shift = 0);

}  // namespace hyperserve
