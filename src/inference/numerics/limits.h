// Facts of the arithmetic that every pass on every device goes by.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace regccrf {

// Finite scores beyond this in size count as this: exponents of a million such steps still fit into 64 bits.
constexpr double kLargestScore = 1e10;

// As a score counts. NaN and infinities stay, for others to judge.
REGCCRF_BOTH inline double bounded_score(double x) {
  return std::isfinite(x) ? std::fmin(std::fmax(x, -kLargestScore), kLargestScore) : x;
}

// The longest sequence that a pass in float serves: rounding errors of a longer one may add up to the tolerance where
// the language remembers (a* | b*).
constexpr std::int64_t kLongestFloat = 256;

// By how much Z from alpha and Z from beta may differ, relative to Z, where both are trusted (bounds.h). The errors of
// all marginals of a position together are at most twice that: it is at most half of the tolerances
// (regccrf/inference.h).
template <class P>
constexpr double kAgreement = 0;
template <>
inline constexpr double kAgreement<float> = 5e-6;
template <>
inline constexpr double kAgreement<double> = 3e-11;

}  // namespace regccrf
