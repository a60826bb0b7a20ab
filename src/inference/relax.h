// How Uncertified::relax goes on (regccrf/inference.h).
#pragma once

#include <algorithm>
#include <limits>

namespace regccrf {

// The gap to allow after this one was not enough; infinity: none, but the base's bound.
inline double relaxed_gap(double gap) {
  constexpr double kFactor = 10, kMost = 1;
  return gap < kMost ? std::min(gap * kFactor, kMost) : std::numeric_limits<double>::infinity();
}

}  // namespace regccrf
