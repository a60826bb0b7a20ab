// Numbers that grow too small for their type, and how the fast passes know whether that matters.
//
// Weights are exp of scores relative to their largest, and each step is scaled by a power of two, so numbers can be
// lost at the lower end only. Alpha is kept at or above the truth, beta at or below it:
//   alpha  a node that can be reached has at least a floor, and a weight whose score is finite is at least `least`. The
//          floor times the least gain is a normal number, so that a sum is 0 where nothing leads and nowhere else; how
//          low the floor can be follows from the gains (floor_for).
//   beta   what is too small is 0, and so is every weight that was raised to `least`.
// So Z by alpha alone is no less than the true Z, and Z by beta alone is no more. If they agree, both are right, and so
// is every position between: alpha · beta, summed, grows from the one to the other, and the errors of all marginals of
// a position together are at most twice the difference. What is impossible has probability 0, exactly.
//
// Of the exponents that a number can have, alpha gets most: the largest of a step is about 2^peak. Beta is scaled so
// that alpha · beta sums to 1, which leaves it enough: a beta that vanishes is worth at most 2^peak times the smallest
// normal number, and none is larger than 1 / floor.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "inference/numerics/arithmetic.h"

namespace regccrf {

template <class P>
struct Bounds;
template <>
struct Bounds<float> {
  static constexpr int peak = 66;
  static constexpr float least = 0x1p-100f;
  static constexpr double lowest_score = -69.3;  // its exp is just above `least`
  static constexpr float lowest_floor = 0x1p-115f;
  static constexpr float low_peak = 0x1p26f, room = 0x1p68f;
  static constexpr int most_scale = 120;  // 2^this at most
};
template <>
struct Bounds<double> {
  static constexpr int peak = 860;
  static constexpr double least = 0x1p-940;
  static constexpr double lowest_score = -651.5;
  static constexpr double lowest_floor = 0x1p-1000;
  static constexpr double low_peak = 0x1p660, room = 0x1p820;
  static constexpr int most_scale = 1000;
};

// The lowest floor for gains whose finite scores are at least this.
template <class P>
P floor_for(double lowest_score) {
  const P least_gain = std::max(static_cast<P>(std::exp(lowest_score)), Bounds<P>::least);
  return std::max(2 * std::numeric_limits<P>::min() / least_gain, Bounds<P>::lowest_floor);
}

// A step whose largest number is below this is scaled anew.
template <class P>
P low_peak_for(P floor) {
  return std::max(Bounds<P>::low_peak, floor * Bounds<P>::room);
}

// The exponent of the scale that brings a step's largest number to the peak.
template <class P>
int scale_for(P largest) {
  return largest > 0 ? std::min(Bounds<P>::peak - exponent_of(largest), Bounds<P>::most_scale) : 0;
}

// A weight as alpha takes it, and that as beta takes it.
template <class P>
P upper_weight(double score, P exp_of_score) {
  return std::isinf(score) ? P{0} : std::max(exp_of_score, Bounds<P>::least);
}
template <class P>
P lower_weight(P upper) {
  return upper > Bounds<P>::least ? upper : P{0};
}

}  // namespace regccrf
