// Viterbi for one sequence, as the decoders of this room share it.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "inference/batch.h"
#include "inference/cpu/plan.h"

namespace regccrf {

// A call's transition, start and end scores in double; zeros where there are none.
struct MaxModel {
  template <class Real>
  explicit MaxModel(const Scores<Real>& scores)
      : K(scores.labels),
        g(scores.transitions.begin(), scores.transitions.end()),
        start(scores.start.begin(), scores.start.end()),
        end(scores.end.begin(), scores.end.end()) {
    start.resize(static_cast<std::size_t>(K));
    end.resize(static_cast<std::size_t>(K));
  }
  double transition(Label a, Label b) const {
    return g.empty() ? 0 : g[static_cast<std::size_t>(a) * static_cast<std::size_t>(K) + static_cast<std::size_t>(b)];
  }

  int K;
  std::vector<double> g;           // [K, K], or empty: zeros
  std::vector<double> start, end;  // [K]
};

template <class P>
struct MaxGains;

// Best paths of a call's sequences. Float where its rounding errors stay below the tolerance, double elsewhere. One
// object serves all threads.
template <class Real>
class BestPaths {
 public:
  BestPaths(const Batch<Real>& batch, MaxModel model);
  ~BestPaths();

  const MaxModel& model() const { return model_; }

  // The best legal sequence; false where there is none of finite score. `y`: [T]
  bool path(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, Label* y);
  // Its score alone, −inf where there is none.
  double score(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena);
  // delta[t, cell]: the best score of a beginning that emits position t from the cell's node. `delta`: [T, plan.cells]
  void beginnings(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, double* delta);

 private:
  struct Prepared;
  template <class P>
  const MaxGains<P>& gains(const Constraint& constraint);

  const Batch<Real>& batch_;
  MaxModel model_;
  std::mutex mutex_;
  std::unordered_map<const Topology*, std::unique_ptr<Prepared>> prepared_;
};

extern template class BestPaths<float>;
extern template class BestPaths<double>;

}  // namespace regccrf
