// A path's own score, summed in double whatever the scores are stored in.
#pragma once

#include "inference/batch.h"

namespace regccrf {

template <class Real>
double path_score(const Scores<Real>& scores, const Sequence<Real>& sequence, const Label* y) {
  if (sequence.T == 0) return 0;
  double sum = 0;
  for (std::int64_t t = 0; t < sequence.T; ++t) sum += sequence.at(t)[y[t]];
  for (std::int64_t t = 0; t + 1 < sequence.T; ++t) sum += scores.transitions[y[t] * sequence.K + y[t + 1]];
  if (!scores.start.empty()) sum += scores.start[y[0]];
  if (!scores.end.empty()) sum += scores.end[y[sequence.T - 1]];
  return sum;
}

}  // namespace regccrf
