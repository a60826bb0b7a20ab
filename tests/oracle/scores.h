// The scores of one sequence, as the oracles take them.
#pragma once

#include <span>
#include <vector>

#include "regccrf/labels.h"

namespace regccrf::oracle {

using Real = long double;

struct Scores {
  int length = 0;                   // T
  int labels = 0;                   // K
  std::vector<double> emissions;    // [T, K]
  std::vector<double> transitions;  // [K, K]
  std::vector<double> start, end;   // [K], or empty

  double emission(int t, Label a) const { return emissions[static_cast<std::size_t>(t) * labels + a]; }
  double transition(Label a, Label b) const { return transitions[static_cast<std::size_t>(a) * labels + b]; }
  double at_start(Label a) const { return start.empty() ? 0 : start[a]; }
  double at_end(Label a) const { return end.empty() ? 0 : end[a]; }
};

// Σ_t h[t, y_t] + Σ_t g[y_t, y_{t+1}] + start[y_0] + end[y_{T-1}]; 0 for the empty sequence.
inline Real score_of(const Scores& scores, std::span<const Label> sequence) {
  if (sequence.empty()) return 0;
  Real score = Real{scores.at_start(sequence.front())} + scores.at_end(sequence.back());
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    score += scores.emission(static_cast<int>(t), sequence[t]);
    if (t > 0) score += scores.transition(sequence[t - 1], sequence[t]);
  }
  return score;
}

}  // namespace regccrf::oracle
