// The fast pass (see forward_backward_cpu.h).
#include "inference/forward_backward_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "inference/arithmetic.h"
#include "inference/checkpoint.h"
#include "inference/kernels.h"
#include "inference/wide.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

template <class P>
struct Range;
template <>
struct Range<float> {
  static constexpr double lowest_score = -20;     // e^-20 = 2^-29
  static constexpr double smallest = 0x1p-60;     // 2^-60 · 2^-29 · 2^-29 and some scaling stay normal
  static constexpr double largest_beta = 0x1p80;  // 2^-126 · 2^80 is negligible, over all nodes and steps too
  static constexpr double largest_growth = 166;   // 2^-126, from many nodes, times 2^166 is not more than that
};
template <>
struct Range<double> {
  static constexpr double lowest_score = -200;
  static constexpr double smallest = 0x1p-400;
  static constexpr double largest_beta = 0x1p900;
  static constexpr double largest_growth = 1882;
};

// 2^-e for the exponent e of x > 0, and e.
template <class P>
std::pair<P, int> scale_of(P x) {
  int e = std::ilogb(x);
  e = std::clamp(e, std::numeric_limits<P>::min_exponent + 1, std::numeric_limits<P>::max_exponent - 2);
  return {std::ldexp(P{1}, -e), e};
}

template <class Real, class P>
class FastPass {
 public:
  using Value = P;

  FastPass(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts,
           bool both_ways)
      : gains_(gains),
        plan_(*gains.topology.plan),
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
  // No number came low enough for anything to be lost on the way forward.
  bool lossless() const { return lowest_ >= Range<P>::lowest_score && smallest_ >= Range<P>::smallest; }
  // Nor could a beta that vanished have become large.
  bool beta_is_known() const { return most_growth_ <= Range<P>::largest_growth; }

  void first(P* alpha) {
    const Topology& topology = gains_.topology;
    const P* w = weigh_emissions(0);
    std::fill_n(alpha, plan_.nodes, P{0});
    largest_ = 0;
    for (std::int32_t n = topology.node_begin[topology.start]; n < topology.node_begin[topology.start + 1]; ++n) {
      const std::int32_t a = topology.node_label[n];
      const P x = w[a] * gains_.start[a];
      alpha[plan_.node_cell[n]] = x;
      note({x, x > 0 ? x : std::numeric_limits<P>::max()});
    }
    spread(plan_, alpha);
    if (factor_) factor_[0] = 1;
    done_ = 0;
  }

  void next(std::int64_t t, const P* before, P* alpha) {
    const P* w = weigh_emissions(t);
    if (t <= done_) {  // a second time: as it was the first
      forward_step(plan_, gains_.matrix, gains_.exists, w, factor_[t], before, false, alpha);
      return;
    }
    const auto [factor, exponent] = largest_ > 0 ? scale_of(largest_) : std::pair<P, int>{P{1}, 0};
    exponents_ += exponent;
    if (factor_) {
      factor_[t] = factor;
      note_growth(w, exponent);
    }
    largest_ = 0;
    note(forward_step(plan_, gains_.matrix, gains_.exists, w, factor, before, true, alpha));
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
    peaks_.add(gains_.g_peak * steps);
    peaks_.add(static_cast<double>(exponents_) * kLn2);
    peaks_.add(std::log(z));
    log_z_ = peaks_.value();
    inverse_z_ = static_cast<P>(1 / z);
    return std::isfinite(inverse_z_) && (lossless() || beta_is_known());
  }

  // The steps visited so far are about to be overwritten.
  void pause() {
    if (E_ && chunk_ > 0) count_chunk();
  }

  bool back(std::int64_t t, const P* alpha) {
    if (t + 1 == sequence_.T) {
      for (std::int32_t c : plan_.node_cell) beta_[c] = gains_.last[c] * inverse_z_;
    } else {
      backward_step(plan_, gains_.transposed, after_, back_, beta_);
      if (E_) collect(alpha);
    }
    ring_ = (ring_ + 1) % (kChunk + 1);
    after_ = after_ring_[ring_];
    // The sum is 1 but for rounding errors. These are damped (a correction comes one step late; a quarter of the error
    // is what brings it back soonest without overshooting), so that they do not add up.
    const Product<P> product = meet(plan_, alpha, beta_, weigh_emissions(t), factor_[t] * correction_, labels_, after_);
    if (!(product.largest <= P{Range<P>::largest_beta}) || !(product.sum > P{0.5} && product.sum < P{2})) return false;
    correction_ = 1 - (product.sum - 1) / 4;
    give_labels(t, static_cast<double>(product.sum));
    if (t == 0) finish(static_cast<double>(product.sum));
    return true;
  }

 private:
  static constexpr int kChunk = 16;  // steps whose bigrams are counted together

  P* row(std::int64_t t) { return weights_ + (keep_weights_ ? t * (K_ + 1) : 0); }

  const P* weigh_emissions(std::int64_t t) {
    P* w = row(t);
    if (keep_weights_ && t <= done_) return w;
    const Peak peak = exp_row(sequence_.at(t), K_, scratch_, w);
    if (t > done_) {
      peaks_.add(peak.largest);
      lowest_ = std::min(lowest_, peak.lowest);
    }
    return w;
  }

  void note(Extent<P> extent) {
    largest_ = std::max(largest_, extent.largest);
    smallest_ = std::min(smallest_, extent.smallest);
  }

  // A step back multiplies beta by at most this much: gains are at most 1, and weights add up.
  void note_growth(const P* w, int exponent) {
    double sum = 0;
    for (int a = 0; a < K_; ++a) sum += static_cast<double>(w[a]);
    growth_ = std::max(0.0, growth_ + std::log2(std::max(sum, 1.0)) - exponent);
    most_growth_ = std::max(most_growth_, growth_);
  }

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
  int K_;
  double* scratch_;
  double lowest_;
  P *weights_, *factor_ = nullptr, *beta_ = nullptr, *back_ = nullptr, *labels_ = nullptr, *E_ = nullptr;
  bool keep_weights_;
  double *end_ = nullptr, *sums_ = nullptr;

  P largest_ = 0, smallest_ = std::numeric_limits<P>::max(), inverse_z_ = 0, correction_ = 1;
  std::int64_t done_ = -1;  // the last step that has been computed once
  std::int64_t exponents_ = 0;
  double growth_ = 0, most_growth_ = 0;  // of beta, in bits: up to this step, and over any steps
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
    : topology(t), g_peak(0), start_peak(0), end_peak(0), lowest(0) {
  const Plan& plan = *t.plan;
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
    return values;
  };
  const double* g = weigh(scores.transitions, K * K, g_peak);
  const double* s = weigh(scores.start, K, start_peak);
  const double* e = weigh(scores.end, K, end_peak);

  matrix = memory.zeros<P>(static_cast<std::size_t>(plan.matrix));
  transposed = memory.zeros<P>(static_cast<std::size_t>(plan.matrix));
  for (const Group& group : plan.groups) {
    const std::int32_t *in = plan.in_labels.data() + group.first_in, *out = plan.out_labels.data() + group.first_out;
    for (std::int32_t i = 0; i < group.in; ++i) {
      for (std::int32_t j = 0; j < group.out; ++j) {
        if (in[i] == t.K || out[j] == t.K) continue;
        const P value = static_cast<P>(g[in[i] * t.K + out[j]]);
        matrix[group.matrix + i * group.out + j] = value;
        transposed[group.matrix + j * group.in + i] = value;
      }
    }
  }
  exists = memory.zeros<P>(static_cast<std::size_t>(plan.nodes));
  last = memory.zeros<P>(static_cast<std::size_t>(plan.nodes));
  start = memory.take<P>(K);
  std::transform(s, s + K, start, [](double x) { return static_cast<P>(x); });
  for (std::int32_t n = 0; n < t.nodes; ++n) {
    const std::int32_t cell = plan.node_cell[n];
    exists[cell] = 1;
    if (t.node_accepts[n]) last[cell] = static_cast<P>(e[t.node_label[n]]);
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

#define REGCCRF_INSTANTIATE(Real, P)                                                                                \
  template Gains<P>::Gains(const Topology&, const Scores<Real>&);                                                   \
  template FastResult fast_log_z(const Gains<P>&, const Sequence<Real>&, Arena&);                                   \
  template FastResult fast_counts(const Gains<P>&, const Sequence<Real>&, Arena&, const Counts<Real>&, std::size_t, \
                                  bool&)
REGCCRF_INSTANTIATE(float, float);
REGCCRF_INSTANTIATE(float, double);
REGCCRF_INSTANTIATE(double, double);

}  // namespace regccrf
