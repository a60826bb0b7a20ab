// A chain from a forward–backward pass of the base (see chain.h): the fast pass, or, where that cannot be trusted, one
// in wide arithmetic. Either shows its positions from the last to the first.
#include "inference/rules/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "inference/cpu/checkpoint.h"
#include "inference/numerics/limits.h"

namespace regccrf {
namespace {

// What the fast pass may have lost is too much beside losses that are smaller than this.
constexpr double kLeastForFast = 1e-9;
constexpr double kLostByFast = kAgreement<double>;

// Takes positions from the last to the first, and links each to the one after it.
class ChainBuilder {
 public:
  ChainBuilder(const Topology& topology, std::int64_t T, const ChainLimits& limits, Chain& chain)
      : topology_(topology), limits_(limits), chain_(chain), place_(static_cast<std::size_t>(topology.Q) + 1, 0) {
    chain.layers.assign(static_cast<std::size_t>(T), {0, 0});
    chain.node.clear();
    chain.label.clear();
    chain.mass.clear();
    chain.arc_begin.assign(1, 0);
    chain.arc_to.clear();
    chain.arc_probability.clear();
    chain.lost = 0;
    chain.too_large = false;
  }

  // mass [N]: of the position's nodes. fill(n, begin, end, p) sets p[0 …] to the probabilities of going on from node n
  // to the live nodes begin … end − 1 of the position after it. Does nothing once the chain is too large.
  template <class Fill>
  void add(std::int64_t t, const std::vector<double>& mass, const Fill& fill) {
    if (chain_.too_large) return;
    const std::int32_t first = static_cast<std::int32_t>(chain_.node.size());
    choose_live(mass);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      if (mass[n] <= threshold_) continue;
      chain_.node.push_back(n);
      chain_.label.push_back(topology_.node_label[n]);
      chain_.mass.push_back(mass[n]);
      if (t + 1 < chain_.T()) add_arcs(n, fill);
      chain_.arc_begin.push_back(static_cast<std::int32_t>(chain_.arc_to.size()));
    }
    chain_.layers[t] = {first, static_cast<std::int32_t>(chain_.node.size()) - first};
    find_places(chain_.layers[t]);
    chain_.too_large = static_cast<std::int64_t>(chain_.arc_to.size()) > limits_.most_arcs;
  }
  std::int32_t node_after(std::int64_t t, std::int32_t i) const { return chain_.node[chain_.layers[t + 1].first + i]; }

 private:
  // The largest threshold such that all that is not above it sums to at most limits_.most_lost.
  void choose_live(const std::vector<double>& mass) {
    small_.clear();
    const double surely = limits_.most_lost / static_cast<double>(mass.size());
    threshold_ = 0;
    double sum = 0;
    for (const double x : mass) {
      if (x <= surely) {
        sum += x;
      } else if (x <= limits_.most_lost) {
        small_.push_back(x);
      }
    }
    threshold_ = surely;
    std::sort(small_.begin(), small_.end());
    for (std::size_t i = 0; i < small_.size(); ++i) {
      // Equal masses go together, or stay together.
      std::size_t j = i;
      double tied = 0;
      while (j < small_.size() && small_[j] == small_[i]) tied += small_[j++];
      if (sum + tied > limits_.most_lost) break;
      sum += tied;
      threshold_ = small_[i];
      i = j - 1;
    }
    chain_.lost += sum;
  }

  // Nodes of a state are neighbours, so its live ones are, too.
  template <class Fill>
  void add_arcs(std::int32_t n, const Fill& fill) {
    for (std::int32_t i = topology_.from_begin[n]; i < topology_.from_begin[n + 1]; ++i) {
      const std::int32_t r = topology_.arrival_state[topology_.from_arrival[i]];
      const std::size_t first = chain_.arc_to.size(), count = static_cast<std::size_t>(place_[r + 1] - place_[r]);
      chain_.arc_to.resize(first + count);
      chain_.arc_probability.resize(first + count);
      std::iota(chain_.arc_to.begin() + static_cast<std::ptrdiff_t>(first), chain_.arc_to.end(), place_[r]);
      fill(n, place_[r], place_[r + 1], chain_.arc_probability.data() + first);
    }
  }

  void find_places(Chain::Layer layer) {
    std::int32_t i = 0;
    for (std::int32_t r = 0; r < topology_.Q; ++r) {
      place_[r] = i;
      while (i < layer.count && chain_.node[layer.first + i] < topology_.node_begin[r + 1]) ++i;
    }
    place_[topology_.Q] = i;
  }

  const Topology& topology_;
  ChainLimits limits_;
  Chain& chain_;
  std::vector<std::int32_t> place_;  // [Q + 1] where a state's live nodes of the position after begin
  std::vector<double> small_;
  double threshold_ = 0;
};

// Forward and backward in wide arithmetic, for checkpoint.h.
template <class Real>
class WideChain {
 public:
  using Value = Wide;

  WideChain(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
            ChainBuilder& builder)
      : topology_(topology),
        steps_(topology, model),
        sequence_(sequence),
        builder_(builder),
        h_(arena.take<Wide>(model.K)),
        arrivals_(arena.take<Wide>(topology.arrivals)),
        beta_(arena.take<Wide>(topology.nodes)),
        after_(arena.take<Wide>(topology.nodes)),
        mass_(static_cast<std::size_t>(topology.nodes)) {}

  std::size_t size() const { return static_cast<std::size_t>(topology_.nodes); }
  Wide z() const { return z_; }

  void first(Wide* alpha) {
    emissions(0);
    steps_.first(h_, alpha);
  }
  void next(std::int64_t t, const Wide* before, Wide* alpha) {
    emissions(t);
    steps_.move(before, arrivals_);
    steps_.mix(arrivals_, h_, alpha);
  }
  bool turn(const Wide* alpha) {
    z_ = steps_.total(alpha);
    return z_.m != 0;
  }
  bool back(std::int64_t t, const Wide* alpha) {
    if (t + 1 == sequence_.T) {
      steps_.last(beta_);
    } else {
      steps_.mix_back(after_, arrivals_);
      steps_.move_back(arrivals_, beta_);
    }
    double sum = 0;
    for (std::int32_t n = 0; n < topology_.nodes; ++n) sum += mass_[n] = ratio(alpha[n] * beta_[n], z_);
    for (double& x : mass_) x /= sum;
    const WideModel& model = steps_.model();
    builder_.add(t, mass_, [&](std::int32_t n, std::int32_t begin, std::int32_t end, double* p) {
      for (std::int32_t i = begin; i < end; ++i) {
        const std::int32_t m = builder_.node_after(t, i);
        const Wide g = model.transition(topology_.node_label[n], topology_.node_label[m]);
        *p++ = ratio(g * after_[m], beta_[n]);
      }
    });
    emissions(t);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) after_[n] = beta_[n] * h_[topology_.node_label[n]];
    return true;
  }

 private:
  void emissions(std::int64_t t) { wide_emissions(sequence_.at(t), sequence_.K, steps_.model().scale, h_); }

  const Topology& topology_;
  WideSteps steps_;
  const Sequence<Real>& sequence_;
  ChainBuilder& builder_;
  Wide *h_, *arrivals_, *beta_, *after_;
  std::vector<double> mass_;
  Wide z_ = kWideZero;
};

template <class Real>
std::vector<double> exp_transitions(const Scores<Real>& scores, double peak) {
  std::vector<double> g;
  for (const Real score : scores.transitions) g.push_back(std::exp(static_cast<double>(score) - peak));
  return g;
}

}  // namespace

int Chain::most_live() const {
  std::int32_t most = 0;
  for (const Layer& layer : layers) most = std::max(most, layer.count);
  return most;
}

template <class Real>
ChainMaker<Real>::ChainMaker(const Constraint& base, const Batch<Real>& batch)
    : base_(base),
      batch_(batch),
      gains_(base_.topology(), batch.scores()),
      g_(exp_transitions(batch.scores(), gains_.g_peak)) {}
template <class Real>
ChainMaker<Real>::~ChainMaker() = default;

template <class Real>
bool ChainMaker<Real>::make(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena,
                            Chain& chain) const {
  if (limits.most_lost >= kLeastForFast) {
    bool trusted = false;
    const bool possible = make_fast(sequence, limits, arena, chain, trusted);
    if (trusted) return possible;
  }
  ++batch_.workspace().wide;
  return make_wide(sequence, limits, arena, chain);
}

template <class Real>
bool ChainMaker<Real>::make_fast(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena, Chain& chain,
                                 bool& trusted) const {
  const Topology& topology = base_.topology();
  const Plan& plan = plan_of(topology);
  ChainBuilder builder(topology, sequence.T, limits, chain);
  std::vector<double> mass(static_cast<std::size_t>(topology.nodes));
  std::vector<double> later;       // [live nodes of the position after] its `after` …
  std::vector<Label> later_label;  // … and their labels
  const FastVisit<double> visit = [&](std::int64_t t, const double* alpha, const double* beta, const double* after,
                                      double sum) {
    if (chain.too_large) return;
    for (std::int32_t n = 0; n < topology.nodes; ++n)
      mass[n] = alpha[plan.node_cell[n]] * beta[plan.node_cell[n]] / sum;
    builder.add(t, mass, [&](std::int32_t n, std::int32_t begin, std::int32_t end, double* p) {
      const double by = 1 / beta[plan.node_cell[n]];
      const double* g = g_.data() + static_cast<std::size_t>(topology.node_label[n]) * topology.K;
      for (std::int32_t i = begin; i < end; ++i) *p++ = (g_.empty() ? 1 : g[later_label[i]]) * later[i] * by;
    });
    const auto first = static_cast<std::size_t>(chain.layers[t].first);
    later.clear();
    for (std::size_t n = first; n < chain.node.size(); ++n) later.push_back(after[plan.node_cell[chain.node[n]]]);
    later_label.assign(chain.label.begin() + static_cast<std::ptrdiff_t>(first), chain.label.end());
  };
  const FastResult result = fast_visit(gains_, sequence, arena, batch_.options().keep_bytes, visit);
  trusted = result.trusted;
  chain.lost += kLostByFast;
  chain.log_z = result.log_z;
  return result.log_z > -std::numeric_limits<double>::infinity();
}

template <class Real>
bool ChainMaker<Real>::make_wide(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena,
                                 Chain& chain) const {
  std::call_once(wide_once_, [&] { wide_ = std::make_unique<WideModel>(batch_.scores()); });
  ChainBuilder builder(base_.topology(), sequence.T, limits, chain);
  WideChain<Real> pass(base_.topology(), *wide_, sequence, arena, builder);
  const bool possible = must_checkpoint(pass, sequence.T, batch_.options().keep_bytes)
                            ? both_ways_checkpointed(pass, sequence.T, arena)
                            : both_ways_kept(pass, sequence.T, arena);
  chain.log_z = log(pass.z());
  return possible;
}

template class ChainMaker<float>;
template class ChainMaker<double>;

}  // namespace regccrf
