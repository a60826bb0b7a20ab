// Wide: a positive number m · 2^e with a mantissa in double and an exponent of its own, 64 bits wide. Products and sums
// of exp(score) never leave its range, and each operation has a relative error of one rounding, whatever the size of
// the scores: a sum of logs loses digits as it grows, an exact integer exponent does not. Slow, and always right: what
// the fast passes fall back to.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.h"
#include "inference/numerics/limits.h"

namespace regccrf {

struct Wide {
  double m;        // [1, 2), or 0
  std::int64_t e;  // far below everything when m is 0
};

constexpr std::int64_t kZeroExponent = std::numeric_limits<std::int64_t>::min() / 8;
constexpr Wide kWideZero{0, kZeroExponent};
constexpr double kLn2 = 0.693147180559945309417232121458, kLn2Rest = 2.3190468138462996e-17;  // and what that lacks

// 2^-d, d ≥ 0; 0 where that is below the normal range.
REGCCRF_BOTH inline double exp2_down(std::int64_t d) {
  return d > 1022 ? 0.0 : std::bit_cast<double>(static_cast<std::uint64_t>(1023 - d) << 52);
}

// x · 2^e for a normal or zero x ≥ 0.
REGCCRF_BOTH inline Wide to_wide(double x, std::int64_t e = 0) {
  if (!(x > 0)) return kWideZero;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::int64_t exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  return {std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL), exponent + e};
}

REGCCRF_BOTH inline Wide operator*(Wide x, Wide y) {
  const double m = x.m * y.m;
  const bool carry = m >= 2;
  return {carry ? m * 0.5 : m, m == 0 ? kZeroExponent : x.e + y.e + carry};
}

REGCCRF_BOTH inline Wide operator+(Wide x, Wide y) {
  const bool less = x.e < y.e;
  const Wide large = less ? y : x, small = less ? x : y;
  const double m = large.m + small.m * exp2_down(large.e - small.e);
  const bool carry = m >= 2;
  return {carry ? m * 0.5 : m, large.e + carry};
}

// exp(score) to one rounding: the score's integer part in units of log 2 is taken off exactly.
REGCCRF_BOTH inline Wide wide_exp(double score) {
  if (score == -std::numeric_limits<double>::infinity()) return kWideZero;
  constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;  // fdlibm's split
  score = bounded_score(score);
  const double k = std::nearbyint(score * 1.44269504088896340736);
  const double rest = (score - k * ln2_high) - k * ln2_low;
  return to_wide(std::exp(rest), static_cast<std::int64_t>(k));
}

REGCCRF_BOTH inline double log(Wide x) {
  if (x.m == 0) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(x.e) * kLn2 + std::log(x.m);
}

// x · y as an operand of `ratio`, or of this, alone: its mantissa may be 2 or more.
REGCCRF_BOTH inline Wide loose_product(Wide x, Wide y) { return {x.m * y.m, x.e + y.e}; }

// x / y as a double; y is not zero.
REGCCRF_BOTH inline double ratio(Wide x, Wide y) {
  if (x.m == 0) return 0;
  const std::int64_t d = x.e - y.e;
  if (d < -1000) return 0;
  if (d > 1000) return std::numeric_limits<double>::infinity();
  return x.m / y.m * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + d) << 52);
}

}  // namespace regccrf
