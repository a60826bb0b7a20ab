// The mean over all paths of a quantity that paths have (mixture.h), and its covariance with the counts of labels and
// bigrams. In wide arithmetic, one sequence at a time, in bounded memory (checkpoint.h).
//
// A path is a Markov chain over nodes, so that means follow step by step. Let F[n] be the mean of what came before and
// of position t itself, given that it is emitted from node n, and B[n] that of what comes after:
//   arrival (r, a):  F = Σ_q p(q) of(p(q), F[q, a])                                  p(q) ∝ alpha[q, a]
//   node (r, b):     F = gain of b at t + Σ_a p(a) of(p(a), F(r, a) + gain of a, b)   p(a) ∝ m[r, a] g[a, b]
// and likewise backward. The covariance with the count of label a at t is
//   Σ_{n with label a} P(n) (of(P(n), F[n] + B[n]) − mean),                           likewise for bigrams.
//
// `Quantity` has `of` and what emissions, transitions, start and end scores add to it.
#pragma once

#include <algorithm>

#include "inference/batch.h"
#include "inference/cpu/checkpoint.h"
#include "inference/cpu/gradients.h"
#include "inference/numerics/mixture.h"

namespace regccrf {

template <class Real, class Quantity>
class CovariancePass {
 public:
  using Value = Averaged;

  CovariancePass(const Topology& topology, const WideModel& model, const Quantity& quantity,
                 const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts)
      : topology_(topology),
        model_(model),
        quantity_(quantity),
        steps_(topology, model),
        sequence_(sequence),
        counts_(counts),
        K_(model.K),
        h_(arena.take<Wide>(K_)),
        node_(arena.take<Wide>(topology.nodes)),
        after_(arena.take<Wide>(topology.nodes)),
        arrival_(arena.take<Wide>(topology.arrivals)),
        arrival_back_(arena.take<Wide>(topology.arrivals)),
        node_mean_(arena.take<double>(topology.nodes)),
        arrival_mean_(arena.take<double>(topology.arrivals)),
        after_mean_(arena.take<double>(topology.nodes)),
        labels_(arena.take<double>(K_)) {}

  std::size_t size() const { return static_cast<std::size_t>(topology_.nodes); }
  const Averaged& whole() const { return whole_; }

  void first(Averaged* v) {
    emissions(0);
    steps_.first(h_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) v[n] = {node_[n], quantity_.start(label(n)) + gain(0, n)};
  }

  void next(std::int64_t t, const Averaged* before, Averaged* v) {
    emissions(t);
    arrive(before);
    steps_.mix(arrival_, h_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      const std::int32_t r = topology_.node_state[n], b = label(n);
      v[n] = {node_[n], 0};
      if (node_[n].m == 0) continue;
      Mixture<Quantity> mixture(node_[n]);
      for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
        const std::int32_t a = topology_.arrival_label[m];
        mixture.add(loose_product(loose_product(arrival_[m], model_.transition(a, b)), h_[b]),
                    arrival_mean_[m] + quantity_.transition(a, b));
      }
      v[n].mean = mixture.value() + gain(t, n);
    }
  }

  bool turn(const Averaged* v) {
    for (std::int32_t n = 0; n < topology_.nodes; ++n) node_[n] = v[n].weight;
    whole_.weight = steps_.total(node_);
    if (whole_.weight.m == 0) return false;
    Mixture<Quantity> mixture(whole_.weight);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      if (topology_.node_accepts[n])
        mixture.add(loose_product(v[n].weight, model_.end[label(n)]), v[n].mean + quantity_.end(label(n)));
    }
    whole_.mean = mixture.value();
    return counts_.wanted();
  }

  bool back(std::int64_t t, const Averaged* v) {
    if (t + 1 == sequence_.T) {
      steps_.last(node_);
      for (std::int32_t n = 0; n < topology_.nodes; ++n) node_mean_[n] = quantity_.end(label(n));
    } else {
      if (counts_.transitions) add_bigrams(v);
      go_back();
    }
    std::fill_n(labels_, K_, 0.0);
    for (std::int32_t n = 0; n < topology_.nodes; ++n)
      labels_[label(n)] += share(loose_product(v[n].weight, node_[n]), v[n].mean + node_mean_[n]);
    if (counts_.emissions) std::copy_n(labels_, K_, counts_.emissions + sequence_.row(t) * K_);
    for (int a = 0; counts_.start && t == 0 && a < K_; ++a) counts_.start[a] += labels_[a];
    for (int a = 0; counts_.end && t + 1 == sequence_.T && a < K_; ++a) counts_.end[a] += labels_[a];
    emissions(t);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      after_[n] = node_[n] * h_[label(n)];
      after_mean_[n] = node_mean_[n] + gain(t, n);
    }
    return true;
  }

 private:
  std::int32_t label(std::int32_t n) const { return topology_.node_label[n]; }
  double gain(std::int64_t t, std::int32_t n) const { return quantity_.emission(sequence_.row(t), label(n)); }
  void emissions(std::int64_t t) { wide_emissions(sequence_.at(t), K_, model_.scale, h_); }

  double share(Wide weight, double around) const {
    return counts_.weight * covariance_share<Quantity>(weight, around, whole_);
  }

  void arrive(const Averaged* before) {
    for (std::int32_t n = 0; n < topology_.nodes; ++n) node_[n] = before[n].weight;
    steps_.move(node_, arrival_);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      Mixture<Quantity> mixture(arrival_[m]);
      for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1] && arrival_[m].m != 0; ++i) {
        const std::int32_t n = topology_.into_node[i];
        mixture.add(before[n].weight, before[n].mean);
      }
      arrival_mean_[m] = mixture.value();
    }
  }

  void add_bigrams(const Averaged* v) {
    arrive(v);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      if (arrival_[m].m == 0) continue;
      const std::int32_t r = topology_.arrival_state[m], a = topology_.arrival_label[m];
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n) {
        const std::int32_t b = label(n);
        counts_.transitions[a * K_ + b] +=
            share(loose_product(loose_product(arrival_[m], model_.transition(a, b)), after_[n]),
                  arrival_mean_[m] + quantity_.transition(a, b) + after_mean_[n]);
      }
    }
  }

  void go_back() {
    steps_.mix_back(after_, arrival_back_);
    for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
      const std::int32_t r = topology_.arrival_state[m], a = topology_.arrival_label[m];
      Mixture<Quantity> mixture(arrival_back_[m]);
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1] && arrival_back_[m].m != 0; ++n) {
        const std::int32_t b = label(n);
        mixture.add(loose_product(model_.transition(a, b), after_[n]), quantity_.transition(a, b) + after_mean_[n]);
      }
      arrival_mean_[m] = mixture.value();
    }
    steps_.move_back(arrival_back_, node_);
    for (std::int32_t n = 0; n < topology_.nodes; ++n) {
      Mixture<Quantity> mixture(node_[n]);
      for (std::int32_t i = topology_.from_begin[n]; i < topology_.from_begin[n + 1] && node_[n].m != 0; ++i) {
        const std::int32_t m = topology_.from_arrival[i];
        mixture.add(arrival_back_[m], arrival_mean_[m]);
      }
      node_mean_[n] = mixture.value();
    }
  }

  const Topology& topology_;
  const WideModel& model_;
  const Quantity& quantity_;
  WideSteps steps_;
  const Sequence<Real>& sequence_;
  const Counts<Real>& counts_;
  int K_;
  Wide *h_, *node_;
  Wide* after_;  // [N] h ⊗ beta of the step visited last
  Wide *arrival_, *arrival_back_;
  double *node_mean_, *arrival_mean_, *after_mean_, *labels_;
  Averaged whole_{kWideZero, 0};
};

// The means [B], and covariances with counts, weighted and summed, where wanted. Of an impossible sequence 0, where
// that is allowed.
// under_rules(sequence, arena, counts) does a sequence whose constraint keeps rules, where the call takes such ones.
struct NoRules {
  template <class... Arguments>
  double operator()(const Arguments&...) const {
    return 0;
  }
};
template <class Real, class Quantity, class UnderRules = NoRules>
Loss covariance(const Batch<Real>& batch, const Quantity& quantity, const Gradients<Real>& gradients,
                const UnderRules& under_rules = {}) {
  GradientSums<Real> sums(batch, gradients);
  const WideModel model(batch.scores());
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    if (batch.constraint(sequence.index).memories() > 0) {
      loss.values[static_cast<std::size_t>(sequence.index)] =
          under_rules(sequence, arena, sums.counts(sequence, member));
      return;
    }
    const Topology& topology = batch.constraint(sequence.index).topology();
    if (sequence.T == 0) {
      if (!topology.accepting[topology.start]) batch.impossible(sequence);
      return;
    }
    const Counts<Real> counts = sums.counts(sequence, member);
    CovariancePass<Real, Quantity> pass(topology, model, quantity, sequence, arena, counts);
    if (!counts.wanted()) {
      one_way(pass, sequence.T, arena);
    } else if (must_checkpoint(pass, sequence.T, batch.options().keep_bytes)) {
      ++batch.workspace().checkpointed;
      both_ways_checkpointed(pass, sequence.T, arena);
    } else {
      both_ways_kept(pass, sequence.T, arena);
    }
    loss.values[static_cast<std::size_t>(sequence.index)] = pass.whole().mean;
    if (pass.whole().weight.m != 0) return;
    batch.impossible(sequence);
    clear_rows(counts, sequence);
  });
  sums.finish();
  return loss;
}

}  // namespace regccrf
