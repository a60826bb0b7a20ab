// Entropy of P(y | x, L) and its gradients, as sums of local conditional entropies.
//
// Accepting paths and sequences are one and the same (the automaton is unambiguous), and a path is a Markov chain over
// nodes. Let Hf[n] be the entropy of what came before, given that position t is emitted from node n, and Hb[n] that of
// what comes after. Both follow by steps that add −log of a conditional probability, so that nothing cancels:
//   arrival (r, a):  Hf = Σ_q p(q) (−log p(q) + Hf[q, a])       p(q) ∝ alpha[q, a]
//   node (r, b):     Hf = Σ_a p(a) (−log p(a) + Hf(r, a))       p(a) ∝ m[r, a] g[a, b]
// and likewise backward. Given node n at t, the expected −log P(y) is −log P(n) + Hf[n] + Hb[n], and the gradient of
// the entropy is the covariance of counts with −log P(y):
//   ∂H / ∂h[t, a] = Σ_{n with label a} P(n) (−log P(n) + Hf[n] + Hb[n] − H),   likewise for bigrams.
// All in wide arithmetic.
#include <algorithm>

#include "inference/batch.h"
#include "inference/checkpoint.h"
#include "inference/gradients.h"
#include "inference/mixture.h"
#include "inference/wide_steps.h"
#include "regccrf/loss.h"

namespace regccrf {

namespace {

template <class Real>
class EntropyPass {
 public:
  using Value = Entropic;

  EntropyPass(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
              const Counts<Real>& counts)
      : topology_(topology),
        model_(model),
        steps_(topology, model),
        sequence_(sequence),
        counts_(counts),
        K_(model.K),
        h_(arena.take<Wide>(K_)),
        node_(arena.take<Wide>(topology.nodes)),
        after_(arena.take<Wide>(topology.nodes)),
        arrival_(arena.take<Wide>(topology.arrivals)),
        arrival_back_(arena.take<Wide>(topology.arrivals)),
        node_entropy_(arena.take<double>(topology.nodes)),
        arrival_entropy_(arena.take<double>(topology.arrivals)),
        after_entropy_(arena.take<double>(topology.nodes)),
        labels_(arena.take<double>(K_)) {}

  std::size_t size() const { return static_cast<std::size_t>(topology_.nodes); }
  Wide z() const { return z_; }
  double entropy() const { return entropy_; }

  void first(Entropic* v) {
    emissions(0);
    steps_.first(h_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) v[n] = {node_[n], 0};
  }

  void next(std::int64_t t, const Entropic* before, Entropic* v) {
    emissions(t);
    arrive(before);
    steps_.mix(arrival_, h_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      const std::int32_t r = topology_.node_state[n], b = topology_.node_label[n];
      v[n] = {node_[n], 0};
      if (node_[n].m == 0) continue;
      Mixture mixture(node_[n]);
      for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
        mixture.add(arrival_[m] * model_.g[topology_.arrival_label[m] * K_ + b] * h_[b], arrival_entropy_[m]);
      }
      v[n].entropy = mixture.value();
    }
  }

  bool turn(const Entropic* v) {
    for (std::int32_t n = 0; n < topology_.nodes; ++n) node_[n] = v[n].weight;
    z_ = steps_.total(node_);
    if (z_.m == 0) return false;
    Mixture mixture(z_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      if (topology_.node_accepts[n]) mixture.add(v[n].weight * model_.end[topology_.node_label[n]], v[n].entropy);
    }
    entropy_ = mixture.value();
    return counts_.wanted();
  }

  bool back(std::int64_t t, const Entropic* v) {
    if (t + 1 == sequence_.T) {
      steps_.last(node_);
      std::fill_n(node_entropy_, topology_.nodes, 0.0);
    } else {
      if (counts_.transitions) add_bigrams(v);
      go_back();
    }
    std::fill_n(labels_, K_, 0.0);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      labels_[topology_.node_label[n]] += share(v[n].weight * node_[n], v[n].entropy + node_entropy_[n]);
    }
    if (counts_.emissions) std::copy_n(labels_, K_, counts_.emissions + sequence_.row(t) * K_);
    for (int a = 0; counts_.start && t == 0 && a < K_; ++a) counts_.start[a] += labels_[a];
    for (int a = 0; counts_.end && t + 1 == sequence_.T && a < K_; ++a) counts_.end[a] += labels_[a];
    emissions(t);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      after_[n] = node_[n] * h_[topology_.node_label[n]];
      after_entropy_[n] = node_entropy_[n];
    }
    return true;
  }

 private:
  void emissions(std::int64_t t) { wide_emissions(sequence_.at(t), K_, model_.scale, h_); }

  // What something of this weight, with this entropy on both sides, adds to the gradient.
  double share(Wide weight, double entropy) const {
    return counts_.weight * gradient_share(weight, entropy, z_, entropy_);
  }

  void arrive(const Entropic* before) {
    for (std::int32_t n = 0; n < topology_.nodes; ++n) node_[n] = before[n].weight;
    steps_.move(node_, arrival_);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      Mixture mixture(arrival_[m]);
      for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1] && arrival_[m].m != 0; ++i) {
        const std::int32_t n = topology_.into_node[i];
        mixture.add(before[n].weight, before[n].entropy);
      }
      arrival_entropy_[m] = mixture.value();
    }
  }

  void add_bigrams(const Entropic* v) {
    arrive(v);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      if (arrival_[m].m == 0) continue;
      const std::int32_t r = topology_.arrival_state[m], a = topology_.arrival_label[m];
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n) {
        const std::int32_t b = topology_.node_label[n];
        counts_.transitions[a * K_ + b] +=
            share(arrival_[m] * model_.g[a * K_ + b] * after_[n], arrival_entropy_[m] + after_entropy_[n]);
      }
    }
  }

  void go_back() {
    steps_.mix_back(after_, arrival_back_);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      const std::int32_t r = topology_.arrival_state[m], a = topology_.arrival_label[m];
      Mixture mixture(arrival_back_[m]);
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1] && arrival_back_[m].m != 0; ++n) {
        mixture.add(model_.g[a * K_ + topology_.node_label[n]] * after_[n], after_entropy_[n]);
      }
      arrival_entropy_[m] = mixture.value();
    }
    steps_.move_back(arrival_back_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      Mixture mixture(node_[n]);
      for (std::int32_t i = topology_.from_begin[n]; i < topology_.from_begin[n + 1] && node_[n].m != 0; ++i) {
        const std::int32_t m = topology_.from_arrival[i];
        mixture.add(arrival_back_[m], arrival_entropy_[m]);
      }
      node_entropy_[n] = mixture.value();
    }
  }

  const Topology& topology_;
  const WideModel& model_;
  WideSteps steps_;
  const Sequence<Real>& sequence_;
  const Counts<Real>& counts_;
  int K_;
  Wide *h_, *node_;
  Wide* after_;  // [N] h ⊗ beta of the step visited last
  Wide *arrival_, *arrival_back_;
  double *node_entropy_, *arrival_entropy_, *after_entropy_, *labels_;
  Wide z_ = kWideZero;
  double entropy_ = 0;
};

template <class Real>
double entropy_of(const Batch<Real>& batch, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                  const Counts<Real>& counts) {
  const Topology& topology = batch.constraint(sequence.index).topology();
  if (sequence.T == 0) {
    if (!topology.accepting[topology.start]) batch.impossible(sequence);
    return 0;
  }
  EntropyPass<Real> pass(topology, model, sequence, arena, counts);
  if (!counts.wanted()) {
    one_way(pass, sequence.T, arena);
  } else if (must_checkpoint(pass, sequence.T, batch.options().keep_bytes)) {
    ++batch.workspace().checkpointed;
    both_ways_checkpointed(pass, sequence.T, arena);
  } else {
    both_ways_kept(pass, sequence.T, arena);
  }
  if (pass.z().m == 0) {
    batch.impossible(sequence);
    clear_rows(counts, sequence);
  }
  return pass.entropy();
}

}  // namespace

template <class Real>
Loss entropy(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
             const Options& options) {
  const Batch<Real> batch("entropy", constraints, scores, options);
  GradientSums<Real> sums(batch, gradients);
  const WideModel model(scores);
  Loss loss;
  loss.values.resize(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    loss.values[sequence.index] = entropy_of(batch, model, sequence, arena, sums.counts(sequence, member));
  });
  sums.finish();
  return loss;
}

template <class Real>
std::vector<double> entropy(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  return entropy(constraints, scores, Gradients<Real>{}, options).values;
}

#define REGCCRF_INSTANTIATE(Real)                                                                         \
  template Loss entropy(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&); \
  template std::vector<double> entropy(const Constraints&, const Scores<Real>&, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
