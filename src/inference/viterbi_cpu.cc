// Viterbi, and posterior decoding, which is Viterbi with label marginals for scores.
//
// The way forward keeps only scores. The way back follows one path, so it finds each predecessor again from the scores
// of its own state's arrivals; no backpointer is ever written.
#include "inference/viterbi.h"

#include <limits>

#include "inference/checkpoint.h"
#include "inference/expectation.h"
#include "inference/path.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

template <class Real>
class ViterbiPass {
 public:
  using Value = double;

  ViterbiPass(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, Arena& arena, Label* y)
      : topology_(topology), model_(model), sequence_(sequence), arrivals_(arena.take<double>(topology.arrivals)), y_(y) {}

  std::size_t size() const { return static_cast<std::size_t>(topology_.nodes); }
  double score() const { return score_; }

  void first(double* delta) {
    std::fill_n(delta, topology_.nodes, kNone);
    const Real* h = sequence_.at(0);
    for (std::int32_t n = topology_.node_begin[topology_.start]; n < topology_.node_begin[topology_.start + 1]; ++n) {
      const std::int32_t a = topology_.node_label[n];
      delta[n] = model_.start[a] + h[a];
    }
  }

  void next(std::int64_t t, const double* before, double* delta) {
    const Real* h = sequence_.at(t);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) arrivals_[m] = arrival(before, m);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      const std::int32_t r = topology_.node_state[n], b = topology_.node_label[n];
      double best = kNone;
      for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
        best = std::max(best, arrivals_[m] + model_.g[topology_.arrival_label[m] * model_.K + b]);
      }
      delta[n] = best + h[b];
    }
  }

  bool turn(const double* delta) {
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      if (!topology_.node_accepts[n]) continue;
      const double score = delta[n] + model_.end[topology_.node_label[n]];
      if (score > score_) {
        score_ = score;
        node_ = n;
      }
    }
    return y_ != nullptr && score_ > kNone;
  }

  bool back(std::int64_t t, const double* delta) {
    if (t + 1 < sequence_.T) node_ = predecessor(delta);
    y_[t] = topology_.node_label[node_];
    return true;
  }

 private:
  double arrival(const double* delta, std::int32_t m) const {
    double best = kNone;
    for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1]; ++i) best = std::max(best, delta[topology_.into_node[i]]);
    return best;
  }
  std::int32_t predecessor(const double* delta) const {
    const std::int32_t r = topology_.node_state[node_], b = topology_.node_label[node_];
    double best = kNone;
    std::int32_t from = -1;
    for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
      const double g = model_.g[topology_.arrival_label[m] * model_.K + b];
      for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1]; ++i) {
        const double score = delta[topology_.into_node[i]] + g;
        if (score > best) {
          best = score;
          from = topology_.into_node[i];
        }
      }
    }
    return from;
  }

  const Topology& topology_;
  const MaxModel& model_;
  const Sequence<Real>& sequence_;
  double* arrivals_;
  Label* y_;
  double score_ = kNone;
  std::int32_t node_ = -1;
};

template <class Real>
double best_score(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, Arena& arena) {
  if (sequence.T == 0) return topology.accepting[topology.start] ? 0 : kNone;
  ViterbiPass<Real> pass(topology, model, sequence, arena, nullptr);
  one_way(pass, sequence.T, arena);
  return pass.score();
}

// Scores that are zero where a label or a pair of labels is possible, −inf where it is forbidden.
MaxModel flat(MaxModel model) {
  for (auto* scores : {&model.g, &model.start, &model.end}) {
    for (double& score : *scores) score = score == kNone ? kNone : 0;
  }
  return model;
}

}  // namespace

template <class Real>
bool best_path(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, const Batch<Real>& batch,
               Arena& arena, Label* y) {
  if (sequence.T == 0) return topology.accepting[topology.start];
  ViterbiPass<Real> pass(topology, model, sequence, arena, y);
  if (must_checkpoint(pass, sequence.T, batch.options().keep_bytes)) {
    ++batch.workspace().checkpointed;
    return both_ways_checkpointed(pass, sequence.T, arena);
  }
  return both_ways_kept(pass, sequence.T, arena);
}

template <class Real>
void best_beginnings(const Topology& topology, const MaxModel& model, const Sequence<Real>& sequence, Arena& arena,
                     double* delta) {
  ViterbiPass<Real> pass(topology, model, sequence, arena, nullptr);
  pass.first(delta);
  for (std::int64_t t = 1; t < sequence.T; ++t) pass.next(t, delta + (t - 1) * topology.nodes, delta + t * topology.nodes);
}

template <class Real>
std::vector<Path> viterbi(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("viterbi", constraints, scores, options);
  const MaxModel model(scores);
  std::vector<Path> paths(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    Path& path = paths[sequence.index];
    path.labels.resize(static_cast<std::size_t>(sequence.T));
    if (best_path(batch.constraint(sequence.index).topology(), model, sequence, batch, arena, path.labels.data())) {
      path.score = path_score(scores, sequence, path.labels.data());
      return;
    }
    batch.impossible(sequence);
    path = {{}, kNone};
  });
  return paths;
}

template <class Real>
std::vector<double> viterbi_score(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("viterbi_score", constraints, scores, options);
  const MaxModel model(scores);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    values[sequence.index] = best_score(batch.constraint(sequence.index).topology(), model, sequence, arena);
  });
  return values;
}

template <class Real>
std::vector<Path> posterior_decode(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("posterior_decode", constraints, scores, options);
  Expectations<Real> expectations(batch);
  const MaxModel model = flat(MaxModel(scores));
  std::vector<Path> paths(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Constraint& constraint = batch.constraint(sequence.index);
    const int K = sequence.K;
    Sequence<Real> dense{sequence.index, sequence.T, K, nullptr, 0, 1, nullptr};
    const std::size_t size = static_cast<std::size_t>(sequence.T) * K;
    Real* emissions = arena.take<Real>(size);
    Real* marginals = arena.take<Real>(size);
    for (std::int64_t t = 0; t < sequence.T; ++t) std::copy_n(sequence.at(t), K, emissions + t * K);
    dense.emissions = emissions;
    Path& path = paths[sequence.index];
    if (expectations(constraint, dense, arena, {.emissions = marginals}) == kNone) {
      batch.impossible(sequence);
      path = {{}, kNone};
      return;
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (emissions[i] == -std::numeric_limits<Real>::infinity()) marginals[i] = emissions[i];
    }
    dense.emissions = marginals;
    path.labels.resize(static_cast<std::size_t>(sequence.T));
    best_path(constraint.topology(), model, dense, batch, arena, path.labels.data());
    path.score = 0;
    for (std::int64_t t = 0; t < sequence.T; ++t) path.score += marginals[t * K + path.labels[t]];
  });
  return paths;
}

#define REGCCRF_INSTANTIATE(Real)                                                                                    \
  template std::vector<Path> viterbi(const Constraints&, const Scores<Real>&, const Options&);                       \
  template std::vector<double> viterbi_score(const Constraints&, const Scores<Real>&, const Options&);               \
  template std::vector<Path> posterior_decode(const Constraints&, const Scores<Real>&, const Options&);              \
  template bool best_path(const Topology&, const MaxModel&, const Sequence<Real>&, const Batch<Real>&, Arena&, Label*); \
  template void best_beginnings(const Topology&, const MaxModel&, const Sequence<Real>&, Arena&, double*)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
