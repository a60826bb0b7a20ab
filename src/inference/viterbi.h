// Viterbi for one sequence, as the decoders of this room share it.
#pragma once

#include <vector>

#include "inference/batch.h"

namespace regccrf {

// A call's transition, start and end scores in double; zeros where there are none.
struct MaxModel {
  template <class Real>
  explicit MaxModel(const Scores<Real>& scores)
      : K(scores.labels), g(scores.transitions.begin(), scores.transitions.end()), start(scores.start.begin(), scores.start.end()),
        end(scores.end.begin(), scores.end.end()) {
    start.resize(static_cast<std::size_t>(K));
    end.resize(static_cast<std::size_t>(K));
  }
  int K;
  std::vector<double> g;           // [K, K]
  std::vector<double> start, end;  // [K]
};

// The best legal sequence; false where there is none of finite score. `y`: [T]
template <class Real>
bool best_path(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, const Batch<Real>& batch,
               Arena& arena, Label* y);

// delta[t, n]: the best score of a beginning that emits position t from node n. `delta`: [T, N]
template <class Real>
void best_beginnings(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, Arena& arena,
                     double* delta);

}  // namespace regccrf
