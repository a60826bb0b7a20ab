// The fast pass (see forward_backward.h).
#include "inference/cpu/forward_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "inference/cpu/checkpoint.h"
#include "inference/cpu/kernels.h"
#include "inference/numerics/arithmetic.h"
#include "inference/numerics/bounds.h"
#include "inference/numerics/limits.h"
#include "inference/numerics/sum.h"
#include "inference/numerics/wide.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

template <class Real, class P>
class FastPass {
 public:
  using Value = P;

  FastPass(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts,
           bool both_ways)
      : gains_(gains),
        plan_(plan_of(gains.topology)),
        sequence_(sequence),
        counts_(counts),
        K_(sequence.K),
        scratch_(arena.take<double>(K_ + 8)),
        lowest_(gains.lowest) {
    const auto T = static_cast<std::size_t>(sequence.T), row = static_cast<std::size_t>(K_) + 1;
    constexpr std::size_t most_kept = std::size_t{1} << 23;
    keep_weights_ = both_ways && T * row <= most_kept;
    weights_ = arena.take<P>(keep_weights_ ? T * row : row);
    if (!both_ways) return;
    factor_ = arena.take<P>(T);
    beta_ = arena.zeros<P>(plan_.nodes);
    back_ = arena.take<P>(plan_.arrivals);
    labels_ = arena.take<P>(K_ + 1);
    end_ = arena.take<double>(K_);
    for (int k = 0; k <= kChunk; ++k) after_ring_[k] = arena.take<P>(plan_.nodes);
    if (!counts.transitions) return;
    E_ = arena.zeros<P>(static_cast<std::size_t>(bigram_size(plan_)));
    sums_ = arena.take<double>(static_cast<std::size_t>(plan_.matrix));
  }

  std::size_t size() const { return static_cast<std::size_t>(plan_.cells); }
  double log_z() const { return log_z_; }
  void show(const FastVisit<P>& visit) { visit_ = &visit; }
  // No number came so low on the way forward that anything was lost.
  bool lossless() const { return lowest_ >= Bounds<P>::lowest_score && smallest_ > gains_.floor; }

  void first(P* alpha) {
    const P* w = weigh_emissions(0);
    double largest = 0;
    for_each_start(
        [&](std::int32_t cell, int a) { largest = std::max(largest, first_weight(w[a], gains_.start[cell])); });
    first_exponent_ = largest > 0 ? Bounds<P>::peak - std::ilogb(largest) : 0;
    exponents_ = -Bounds<P>::peak - first_exponent_;
    largest_ = 0;
    std::fill_n(alpha, plan_.nodes, P{0});
    for_each_start([&](std::int32_t cell, int a) {
      if (w[a] == 0 || gains_.start[cell] == 0) return;
      const auto x = static_cast<P>(std::ldexp(first_weight(w[a], gains_.start[cell]), first_exponent_));
      alpha[cell] = std::max(x, gains_.floor);
      note({alpha[cell], alpha[cell]});
    });
    spread(plan_, alpha);
    done_ = 0;
  }

  void next(std::int64_t t, const P* before, P* alpha) {
    const P* w = weigh_emissions(t);
    if (t <= done_) {  // a second time: as it was the first
      step(w, factor_[t], before, alpha);
      return;
    }
    // Scaled as the step before suggests, and anew where that was far too little.
    int exponent = scale_for(largest_);
    Extent<P> extent = step(w, power_of_two(P{}, exponent), before, alpha);
    largest_ = extent.largest;
    if (largest_ > 0 && largest_ < low_peak_for(gains_.floor) && exponent < Bounds<P>::most_scale) {
      exponent = std::min(exponent + scale_for(largest_), Bounds<P>::most_scale);
      extent = step(w, power_of_two(P{}, exponent), before, alpha);
    }
    exponents_ -= exponent;
    if (factor_) factor_[t] = power_of_two(P{}, exponent);
    largest_ = 0;
    note(extent);
    done_ = t;
  }

  bool turn(const P* alpha) {
    double z = 0;
    for (std::int32_t c : plan_.node_cell) z += static_cast<double>(alpha[c]) * static_cast<double>(gains_.last[c]);
    log_z_ = kNone;
    if (!(z > 0)) return false;
    const double steps = static_cast<double>(sequence_.T - 1);
    peaks_.add(gains_.start_peak);
    peaks_.add(gains_.end_peak);
    peaks_.add(gains_.g_peak, steps);
    peaks_.add(kLn2, static_cast<double>(exponents_));
    peaks_.add(kLn2Rest, static_cast<double>(exponents_));
    peaks_.add(std::log(z));
    log_z_ = peaks_.value();
    inverse_z_ = static_cast<P>(1 / z);
    return true;
  }

  // The steps visited so far are about to be overwritten.
  void pause() {
    if (E_ && chunk_ > 0) count_chunk();
  }

  bool back(std::int64_t t, const P* alpha) {
    if (t + 1 == sequence_.T) {
      for (std::int32_t c : plan_.node_cell) beta_[c] = lower_weight(gains_.last[c]) * inverse_z_;
    } else {
      backward_step(plan_, gains_.transposed, after_, back_, beta_);
      if (E_) collect(alpha);
    }
    ring_ = (ring_ + 1) % (kChunk + 1);
    after_ = after_ring_[ring_];
    const P* w = lower_emissions(t);
    const P factor = t > 0 ? factor_[t] * correction_ : P{0};
    const P sum = meet(plan_, alpha, beta_, w, factor, labels_, after_);
    // log_z from here on, relative to alpha's, can only fall.
    if (!is_enough(static_cast<double>(sum)) || !(sum < P{2})) return false;
    if (visit_) (*visit_)(t, alpha, beta_, after_, static_cast<double>(sum));
    give_labels(t, static_cast<double>(sum));
    if (t == 0) {
      if (!is_enough(z_of_beta(w))) return false;
      finish(static_cast<double>(sum));
      return true;
    }
    // The sum is 1 but for rounding errors. These are damped (a correction comes one step late; a quarter of the error
    // is what brings it back soonest without overshooting), so that they do not add up.
    corrected_ += static_cast<double>(correction_ - 1);
    correction_ = 1 - (sum - 1) / 4;
    return true;
  }

 private:
  static constexpr int kChunk = 16;  // steps whose bigrams are counted together

  P* row(std::int64_t t) { return weights_ + (keep_weights_ ? t * (K_ + 1) : 0); }

  P* weigh_emissions(std::int64_t t) {
    P* w = row(t);
    if (keep_weights_ && t <= done_) return w;
    const Real* h = sequence_.at(t);
    const Peak peak = exp_row(h, K_, scratch_, w);
    if (peak.lowest < Bounds<P>::lowest_score) {
      for (int a = 0; a < K_; ++a) w[a] = upper_weight(static_cast<double>(h[a]), w[a]);
    }
    if (t > done_) {
      peaks_.add(peak.largest);
      lowest_ = std::min(lowest_, peak.lowest);
    }
    return w;
  }
  // Alpha no longer needs them.
  const P* lower_emissions(std::int64_t t) {
    P* w = weigh_emissions(t);
    if (lowest_ < Bounds<P>::lowest_score) std::transform(w, w + K_, w, lower_weight<P>);
    return w;
  }

  Extent<P> step(const P* w, P factor, const P* before, P* alpha) {
    return forward_step(plan_, gains_.matrix, gains_.exists, w, factor, gains_.floor, before, !factor_, alpha);
  }

  void note(Extent<P> extent) {
    largest_ = std::max(largest_, extent.largest);
    smallest_ = std::min(smallest_, extent.smallest);
  }

  // visit(cell, label) of the start state's nodes.
  template <class Visit>
  void for_each_start(const Visit& visit) const {
    const Topology& topology = gains_.topology;
    for (std::int32_t n = topology.node_begin[topology.start]; n < topology.node_begin[topology.start + 1]; ++n)
      visit(plan_.node_cell[n], topology.node_label[n]);
  }
  // Scaled so that nothing is too small for a double.
  static double first_weight(P w, P start) {
    return std::ldexp(static_cast<double>(w), Bounds<P>::peak) * static_cast<double>(start);
  }

  // Z by beta alone, relative to alpha's.
  double z_of_beta(const P* w) const {
    double z = 0;
    for_each_start([&](std::int32_t cell, int a) {
      const double x = first_weight(w[a], lower_weight(gains_.start[cell]));
      if (x > 0) z += std::ldexp(x, first_exponent_) * static_cast<double>(beta_[cell]);
    });
    return z;
  }
  bool is_enough(double z) const { return z - 1 - corrected_ >= -kAgreement<P>; }

  void give_labels(std::int64_t t, double sum) {
    const double weight = counts_.weight / sum;
    if (counts_.emissions) {
      Real* out = counts_.emissions + sequence_.row(t) * K_;
      for (int a = 0; a < K_; ++a) out[a] = static_cast<Real>(static_cast<P>(weight) * labels_[a]);
    }
    if (t + 1 < sequence_.T || !counts_.end) return;
    for (int a = 0; a < K_; ++a) end_[a] = weight * static_cast<double>(labels_[a]);
  }

  void collect(const P* alpha) {
    chunk_alpha_[chunk_] = alpha;
    chunk_after_[chunk_] = after_;
    if (++chunk_ == kChunk) count_chunk();
  }
  void count_chunk() {
    add_bigrams(plan_, chunk_alpha_, chunk_after_, chunk_, E_);
    chunk_ = 0;
  }
  // Sums over sequences are touched only here, where the pass can no longer fail.
  void finish(double sum) {
    const double weight = counts_.weight / sum;
    for (int a = 0; counts_.start && a < K_; ++a) counts_.start[a] += weight * static_cast<double>(labels_[a]);
    for (int a = 0; counts_.end && a < K_; ++a) counts_.end[a] += end_[a];
    if (!E_) return;
    if (chunk_ > 0) count_chunk();
    sum_bigrams(plan_, E_, gains_.matrix, counts_.weight, static_cast<double>(sequence_.T - 1), sums_,
                counts_.transitions);
  }

  const Gains<P>& gains_;
  const Plan& plan_;
  const Sequence<Real>& sequence_;
  const Counts<Real>& counts_;
  const FastVisit<P>* visit_ = nullptr;
  int K_;
  double* scratch_;
  double lowest_;
  P *weights_, *factor_ = nullptr, *beta_ = nullptr, *back_ = nullptr, *labels_ = nullptr, *E_ = nullptr;
  bool keep_weights_;
  double *end_ = nullptr, *sums_ = nullptr;

  P largest_ = 0, smallest_ = std::numeric_limits<P>::max(), inverse_z_ = 0, correction_ = 1;
  double corrected_ = 0;    // by how much all corrections together have raised beta
  std::int64_t done_ = -1;  // the last step that has been computed once
  std::int64_t exponents_ = 0;
  int first_exponent_ = 0;
  Sum peaks_;
  double log_z_ = kNone;

  P* after_ring_[kChunk + 1];
  P* after_ = nullptr;  // h ⊗ beta of the step visited last
  int ring_ = 0;
  const P* chunk_alpha_[kChunk];
  const P* chunk_after_[kChunk];
  int chunk_ = 0;
};

}  // namespace

template <class P>
template <class Real>
Gains<P>::Gains(const Topology& t, const Scores<Real>& scores)
    : topology(t), g_peak(0), start_peak(0), end_peak(0), lowest(0), floor(0) {
  const Plan& plan = plan_of(t);
  const auto K = static_cast<std::size_t>(t.K);
  // exp of some scores relative to their largest, and that; ones where there are none.
  const auto weigh = [&](std::span<const Real> from, std::size_t size, double& peak) {
    double* values = memory.take<double>(size + 8);
    std::fill_n(values, size + 8, 0.0);
    std::copy(from.begin(), from.end(), values);
    double high = kNone;
    for (std::size_t i = 0; i < size; ++i) high = std::max(high, values[i]);
    peak = high == kNone ? 0 : high;
    for (std::size_t i = 0; i < size; ++i) lowest = std::min(lowest, values[i] == kNone ? 0 : values[i] - peak);
    exp_all(values, static_cast<int>(size), peak);
    P* weights = memory.take<P>(size);
    for (std::size_t i = 0; i < size; ++i) weights[i] = static_cast<P>(values[i]);
    if (lowest < Bounds<P>::lowest_score) {
      for (std::size_t i = 0; i < from.size(); ++i) weights[i] = upper_weight(static_cast<double>(from[i]), weights[i]);
    }
    return weights;
  };
  const P* g = scores.transitions.empty() ? nullptr : weigh(scores.transitions, K * K, g_peak);
  const P* e = weigh(scores.end, K, end_peak);
  floor = floor_for<P>(lowest);
  const P* s = weigh(scores.start, K, start_peak);

  matrix = memory.zeros<P>(static_cast<std::size_t>(plan.matrix));
  transposed = memory.zeros<P>(static_cast<std::size_t>(plan.matrix));
  for_each_gain(plan, [&](std::int64_t entry, std::int64_t across, std::int32_t a, std::int32_t b) {
    matrix[entry] = g ? g[a * t.K + b] : P{1};
    transposed[across] = lower_weight(matrix[entry]);
  });
  exists = memory.zeros<P>(static_cast<std::size_t>(plan.nodes));
  start = memory.zeros<P>(static_cast<std::size_t>(plan.nodes));
  last = memory.zeros<P>(static_cast<std::size_t>(plan.nodes));
  for (std::int32_t n = 0; n < t.nodes; ++n) {
    const std::int32_t cell = plan.node_cell[n];
    exists[cell] = 1;
    if (t.node_state[n] == t.start) start[cell] = s[t.node_label[n]];
    if (t.node_accepts[n]) last[cell] = e[t.node_label[n]];
  }
}

template <class Real, class P>
FastResult fast_log_z(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena) {
  const FlushToZero flush;
  const Counts<Real> none;
  FastPass<Real, P> pass(gains, sequence, arena, none, false);
  one_way(pass, sequence.T, arena);
  return {pass.lossless(), pass.log_z()};
}

template <class Real, class P>
FastResult fast_counts(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts,
                       std::size_t keep_bytes, bool& checkpointed) {
  const FlushToZero flush;
  FastPass<Real, P> pass(gains, sequence, arena, counts, true);
  checkpointed = must_checkpoint(pass, sequence.T, keep_bytes);
  const bool trusted =
      checkpointed ? both_ways_checkpointed(pass, sequence.T, arena) : both_ways_kept(pass, sequence.T, arena);
  return {trusted, pass.log_z()};
}

template <class Real, class P>
FastResult fast_visit(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, std::size_t keep_bytes,
                      const FastVisit<P>& visit) {
  const FlushToZero flush;
  const Counts<Real> none;
  FastPass<Real, P> pass(gains, sequence, arena, none, true);
  pass.show(visit);
  const bool trusted = must_checkpoint(pass, sequence.T, keep_bytes) ? both_ways_checkpointed(pass, sequence.T, arena)
                                                                     : both_ways_kept(pass, sequence.T, arena);
  return {trusted, pass.log_z()};
}

#define REGCCRF_INSTANTIATE(Real, P)                                                                                \
  template Gains<P>::Gains(const Topology&, const Scores<Real>&);                                                   \
  template FastResult fast_log_z(const Gains<P>&, const Sequence<Real>&, Arena&);                                   \
  template FastResult fast_counts(const Gains<P>&, const Sequence<Real>&, Arena&, const Counts<Real>&, std::size_t, \
                                  bool&);                                                                           \
  template FastResult fast_visit(const Gains<P>&, const Sequence<Real>&, Arena&, std::size_t, const FastVisit<P>&)
REGCCRF_INSTANTIATE(float, float);
REGCCRF_INSTANTIATE(float, double);
REGCCRF_INSTANTIATE(double, double);

}  // namespace regccrf
