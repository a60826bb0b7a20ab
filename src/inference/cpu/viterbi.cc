// Viterbi. The way forward keeps only scores. The way back follows one path, so it finds each predecessor again from
// the scores of its own state's arrivals; no backpointer is ever written.
//
// In float, scores are kept relative to the best of the step before, so a rounding error is at most half a unit in the
// last place of the spread of the scores. Three roundings a step, over the whole sequence, on the path that was found
// and on the one that might have been better: where that is below the tolerance the path stands, else it is done in
// double.
#include "inference/cpu/viterbi.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "inference/cpu/checkpoint.h"
#include "inference/cpu/kernels.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

}  // namespace

// A model's scores laid out for one plan; −inf wherever there is only padding.
template <class P>
struct MaxGains {
  MaxGains(const Topology& t, const MaxModel& model)
      : topology(t),
        K(t.K),
        g(model.g.begin(), model.g.end()),
        start(model.start.begin(), model.start.end()),
        end(model.end.begin(), model.end.end()) {
    constexpr P none = -std::numeric_limits<P>::infinity();
    const Plan& plan = plan_of(t);
    matrix = memory.take<P>(static_cast<std::size_t>(plan.matrix));
    std::fill_n(matrix, plan.matrix, none);
    for_each_gain(plan, [&](std::int64_t entry, std::int64_t, std::int32_t a, std::int32_t b) {
      matrix[entry] = transition(a, b);
    });
    exists = memory.take<P>(static_cast<std::size_t>(plan.nodes));
    for (std::int32_t c = 0; c < plan.nodes; ++c) exists[c] = plan.node_exists[c] ? P{0} : none;
    for (P x : g) largest_g = std::max(largest_g, x == none ? 0.0 : std::abs(static_cast<double>(x)));
  }

  P transition(std::int32_t a, std::int32_t b) const { return g.empty() ? P{0} : g[a * K + b]; }

  const Topology& topology;
  int K;
  std::vector<P> g, start, end;
  double largest_g = 0;  // absolute, of the finite ones
  Arena memory;
  P *matrix, *exists;
};

namespace {

template <class Real, class P>
class ViterbiPass {
 public:
  using Value = P;

  ViterbiPass(const MaxGains<P>& gains, const Sequence<Real>& sequence, Arena& arena, Label* y)
      : gains_(gains),
        topology_(gains.topology),
        plan_(plan_of(gains.topology)),
        sequence_(sequence),
        y_(y),
        h_(arena.take<P>(gains.K + 1)),
        shift_(std::is_same_v<P, float> ? arena.take<P>(sequence.T) : nullptr) {}

  std::size_t size() const { return static_cast<std::size_t>(plan_.cells); }
  double score() const { return score_; }
  // How far the score of the path found may lie below the best one's.
  double error() const {
    const double step = 3 * spread_ * static_cast<double>(std::numeric_limits<P>::epsilon()) / 2;
    return 2 * step * static_cast<double>(sequence_.T);
  }

  void first(P* delta) {
    emissions(0);
    std::fill_n(delta, plan_.nodes, kLeast);
    largest_ = kLeast;
    for (std::int32_t n = topology_.node_begin[topology_.start]; n < topology_.node_begin[topology_.start + 1]; ++n) {
      const std::int32_t a = topology_.node_label[n];
      const P x = gains_.start[a] + h_[a];
      delta[plan_.node_cell[n]] = x;
      largest_ = std::max(largest_, x);
      if (x > kLeast) note(x);
    }
    max_spread(plan_, delta);
    done_ = 0;
  }

  void next(std::int64_t t, const P* before, P* delta) {
    emissions(t);
    P shift = 0;
    if (shift_) {
      if (t > done_) {
        shift_[t] = largest_ > kLeast ? -largest_ : P{0};
        shifts_ -= static_cast<double>(shift_[t]);
      }
      shift = shift_[t];
    }
    const Extent<P> extent = max_step(plan_, gains_.matrix, gains_.exists, h_, shift, before, delta);
    largest_ = extent.largest;
    done_ = std::max(done_, t);
    if (largest_ == kLeast) return;
    note(extent.largest);
    note(extent.smallest);
    note(static_cast<P>(shift));
  }

  bool turn(const P* delta) {
    P best = kLeast;
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      if (!topology_.node_accepts[n]) continue;
      const P x = delta[plan_.node_cell[n]] + gains_.end[topology_.node_label[n]];
      if (x > best) {
        best = x;
        node_ = n;
      }
    }
    score_ = static_cast<double>(best) + shifts_;
    return y_ != nullptr && best > kLeast;
  }

  bool back(std::int64_t t, const P* delta) {
    if (t + 1 < sequence_.T) node_ = predecessor(delta);
    y_[t] = topology_.node_label[node_];
    return true;
  }

 private:
  static constexpr P kLeast = -std::numeric_limits<P>::infinity();

  void emissions(std::int64_t t) {
    const Real* h = sequence_.at(t);
    for (int a = 0; a < gains_.K; ++a) h_[a] = static_cast<P>(h[a]);
    h_[gains_.K] = 0;
    if (!shift_ || t <= done_) return;
    double most = 0;
    for (int a = 0; a < gains_.K; ++a)
      most = std::max(most, h_[a] == kLeast ? 0.0 : std::abs(static_cast<double>(h_[a])));
    largest_h_ = std::max(largest_h_, most);
  }
  void note(P x) { spread_ = std::max(spread_, std::abs(static_cast<double>(x)) + gains_.largest_g + largest_h_); }

  std::int32_t predecessor(const P* delta) const {
    const std::int32_t r = topology_.node_state[node_], b = topology_.node_label[node_];
    P best = kLeast;
    std::int32_t from = -1;
    for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
      const P g = gains_.transition(topology_.arrival_label[m], b);
      for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1]; ++i) {
        const std::int32_t n = topology_.into_node[i];
        const P x = delta[plan_.node_cell[n]] + g;
        if (x > best) {
          best = x;
          from = n;
        }
      }
    }
    return from;
  }

  const MaxGains<P>& gains_;
  const Topology& topology_;
  const Plan& plan_;
  const Sequence<Real>& sequence_;
  Label* y_;
  P* h_;
  P* shift_;  // [T] in float: what was added at each step
  P largest_ = kLeast;
  double spread_ = 0, largest_h_ = 0, shifts_ = 0;
  double score_ = kNone;
  std::int64_t done_ = -1;
  std::int32_t node_ = -1;
};

bool close_enough(double error, double score) {
  return score == kNone || error <= 1e-5 * std::max(1.0, std::abs(score));
}

// Both ways, or forward alone without `y`. The score, and whether it can be trusted.
template <class Real, class P>
std::pair<double, bool> run(const MaxGains<P>& gains, const Sequence<Real>& sequence, const Batch<Real>& batch,
                            Arena& arena, Label* y) {
  ViterbiPass<Real, P> pass(gains, sequence, arena, y);
  if (y == nullptr) {
    one_way(pass, sequence.T, arena);
  } else if (must_checkpoint(pass, sequence.T, batch.options().keep_bytes)) {
    ++batch.workspace().checkpointed;
    both_ways_checkpointed(pass, sequence.T, arena);
  } else {
    both_ways_kept(pass, sequence.T, arena);
  }
  return {pass.score(),
          std::is_same_v<P, Real> && std::is_same_v<P, double> ? true : close_enough(pass.error(), pass.score())};
}

}  // namespace

template <class Real>
struct BestPaths<Real>::Prepared {
  explicit Prepared(const Constraint& c) : constraint(c) {}
  Constraint constraint;  // keeps the topology alive
  std::unique_ptr<MaxGains<float>> in_float;
  std::unique_ptr<MaxGains<double>> in_double;

  std::unique_ptr<MaxGains<float>>& slot(float) { return in_float; }
  std::unique_ptr<MaxGains<double>>& slot(double) { return in_double; }
};

template <class Real>
BestPaths<Real>::BestPaths(const Batch<Real>& batch, MaxModel model) : batch_(batch), model_(std::move(model)) {}
template <class Real>
BestPaths<Real>::~BestPaths() = default;

template <class Real>
template <class P>
const MaxGains<P>& BestPaths<Real>::gains(const Constraint& constraint) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Prepared>& prepared = prepared_[&constraint.topology()];
  if (!prepared) prepared = std::make_unique<Prepared>(constraint);
  std::unique_ptr<MaxGains<P>>& slot = prepared->slot(P{});
  if (!slot) slot = std::make_unique<MaxGains<P>>(constraint.topology(), model_);
  return *slot;
}

template <class Real>
double BestPaths<Real>::score(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena) {
  const Topology& topology = constraint.topology();
  if (sequence.T == 0) return topology.accepting[topology.start] ? 0 : kNone;
  if constexpr (std::is_same_v<Real, float>) {
    if (topology.nodes > kFewNodes) {
      const auto [score, trusted] = run(gains<float>(constraint), sequence, batch_, arena, nullptr);
      if (trusted) return score;
      ++batch_.workspace().doubled;
    }
  }
  return run(gains<double>(constraint), sequence, batch_, arena, nullptr).first;
}

template <class Real>
bool BestPaths<Real>::path(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena, Label* y) {
  const Topology& topology = constraint.topology();
  if (sequence.T == 0) return topology.accepting[topology.start];
  if constexpr (std::is_same_v<Real, float>) {
    if (topology.nodes > kFewNodes) {
      const auto [score, trusted] = run(gains<float>(constraint), sequence, batch_, arena, y);
      if (trusted) return score > kNone;
      ++batch_.workspace().doubled;
    }
  }
  return run(gains<double>(constraint), sequence, batch_, arena, y).first > kNone;
}

template <class Real>
void BestPaths<Real>::beginnings(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                 double* delta) {
  ViterbiPass<Real, double> pass(gains<double>(constraint), sequence, arena, nullptr);
  pass.first(delta);
  for (std::int64_t t = 1; t < sequence.T; ++t) pass.next(t, delta + (t - 1) * pass.size(), delta + t * pass.size());
}

template class BestPaths<float>;
template class BestPaths<double>;

}  // namespace regccrf
