// Forward–backward over the arcs of an automaton, for sequences too long to enumerate: log domain, long double, and
// every step normalised, so that rounding does not grow with T.
//
// alpha[t, e] = log P(labels so far end with arc e), up to a constant per step; beta likewise from the right. The
// constants of the forward pass add up to log_z. Marginals are normalised position by position.
#pragma once

#include <vector>

#include "regccrf/automaton.h"
#include "tests/oracle/scores.h"

namespace regccrf::oracle {

struct DenseResult {
  Real log_z = 0;  // -inf where nothing is possible; what follows is 0 then
  Real best = 0;   // the best path's score
  Real entropy = 0;
  std::vector<Real> labels;   // [T, K] marginals
  std::vector<Real> bigrams;  // [K, K] expected counts
  std::vector<Real> start;    // [K]
  std::vector<Real> end;      // [K]
};

DenseResult dense(const Automaton& automaton, const Scores& scores);

}  // namespace regccrf::oracle
