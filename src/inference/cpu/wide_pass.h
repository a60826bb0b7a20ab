// Forward, and forward–backward, in wide arithmetic: the passes that are right for any scores.
#pragma once

#include <cstdint>
#include <functional>

#include "inference/batch.h"
#include "inference/cpu/checkpoint.h"
#include "inference/cpu/wide_steps.h"

namespace regccrf {

// Z, in O(nodes) memory. Zero where no sequence of this length is legal.
template <class Real>
Wide wide_total(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena);

// visit(t, nodes) for t = T-1 … 0: nodes [N] has P(position t is emitted from node n). E [K, K], unless null, gets the
// expected bigrams of all positions added to it; those of (t, t+1) are in it when t is visited. Returns Z; where it is
// zero nothing is visited or added.
using WideVisit = std::function<void(std::int64_t t, const double* nodes)>;
template <class Real>
Wide wide_marginals(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                    std::size_t keep_bytes, double* E, const WideVisit& visit);

// The way forward, for passes that checkpoint.h drives: alpha at every step, and Z at the turn. They add a way back.
template <class Real>
class WideForward {
 public:
  using Value = Wide;

  WideForward(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena)
      : steps_(topology, model),
        sequence_(sequence),
        h_(arena.take<Wide>(model.K)),
        arrivals_(arena.take<Wide>(topology.arrivals)) {}

  std::size_t size() const { return static_cast<std::size_t>(steps_.topology().nodes); }
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

 protected:
  void emissions(std::int64_t t) { wide_emissions(sequence_.at(t), sequence_.K, steps_.model().scale, h_); }
  void weigh(Wide* beta) const {  // beta ← h ⊗ beta
    for (std::int32_t n = 0; n < steps_.topology().nodes; ++n) beta[n] = beta[n] * h_[steps_.topology().node_label[n]];
  }

  WideSteps steps_;
  const Sequence<Real>& sequence_;
  Wide *h_, *arrivals_;  // of the step that was computed last
  Wide z_ = kWideZero;
};

template <class Pass>
void both_ways(Pass& pass, std::int64_t T, std::size_t keep_bytes, Arena& arena) {
  if (must_checkpoint(pass, T, keep_bytes)) {
    both_ways_checkpointed(pass, T, arena);
  } else {
    both_ways_kept(pass, T, arena);
  }
}

}  // namespace regccrf
