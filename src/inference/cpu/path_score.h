// A path's own score, summed in double whatever the scores are stored in (numerics/path_score.h).
#pragma once

#include "inference/batch.h"
#include "inference/numerics/path_score.h"

namespace regccrf {

template <class Real>
struct PathTerms {
  const Scores<Real>& scores;
  const Sequence<Real>& sequence;

  double emission(std::int64_t t, std::int64_t a) const { return sequence.at(t)[a]; }
  double transition(std::int64_t a, std::int64_t b) const {
    return scores.transitions.empty() ? 0 : scores.transitions[a * sequence.K + b];
  }
  double start(std::int64_t a) const { return scores.start.empty() ? 0 : scores.start[a]; }
  double end(std::int64_t a) const { return scores.end.empty() ? 0 : scores.end[a]; }
};

template <class Real>
double path_score(const Scores<Real>& scores, const Sequence<Real>& sequence, const Label* y) {
  Sum sum;
  const PathTerms<Real> terms{scores, sequence};
  for (std::int64_t t = 0; t < sequence.T; ++t)
    add_position(
        terms, sequence.T, t, [y](std::int64_t at) { return y[at]; }, sum);
  return sum.value();
}

}  // namespace regccrf
