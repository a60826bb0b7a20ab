// Forward–backward in wide arithmetic (see wide_pass.h).
#include "inference/cpu/wide_pass.h"

#include <numeric>

#include "inference/cpu/checkpoint.h"

namespace regccrf {

namespace {

template <class Real>
class WideMarginals {
 public:
  using Value = Wide;

  WideMarginals(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                double* E, const WideVisit& visit)
      : steps_(topology, model),
        sequence_(sequence),
        visit_(visit),
        E_(E),
        h_(arena.take<Wide>(model.K)),
        arrivals_(arena.take<Wide>(topology.arrivals)),
        back_(arena.take<Wide>(topology.arrivals)),
        beta_(arena.take<Wide>(topology.nodes)),
        nodes_(arena.take<double>(topology.nodes)) {}

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
  bool back(std::int64_t t, const Wide* alpha) {
    const Topology& topology = steps_.topology();
    if (t + 1 == sequence_.T) {
      steps_.last(beta_);
    } else {
      steps_.mix_back(beta_, back_);
      if (E_) {
        steps_.move(alpha, arrivals_);
        steps_.add_bigrams(arrivals_, beta_, z_, E_);
      }
      steps_.move_back(back_, beta_);
    }
    double sum = 0;
    for (std::int32_t n = 0; n < topology.nodes; ++n) sum += nodes_[n] = ratio(alpha[n] * beta_[n], z_);
    for (std::int32_t n = 0; n < topology.nodes; ++n) nodes_[n] /= sum;
    visit_(t, nodes_);
    emissions(t);
    for (std::int32_t n = 0; n < topology.nodes; ++n) beta_[n] = beta_[n] * h_[topology.node_label[n]];
    return true;
  }

 private:
  void emissions(std::int64_t t) { wide_emissions(sequence_.at(t), sequence_.K, steps_.model().scale, h_); }

  WideSteps steps_;
  const Sequence<Real>& sequence_;
  const WideVisit& visit_;
  double* E_;
  Wide *h_, *arrivals_, *back_;
  Wide* beta_;  // [N] between calls of back: h ⊗ beta of the step visited last
  double* nodes_;
  Wide z_ = kWideZero;
};

}  // namespace

template <class Real>
Wide wide_total(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena) {
  if (sequence.T == 0) return topology.accepting[topology.start] ? Wide{1, 0} : kWideZero;
  WideSteps steps(topology, model);
  Wide* h = arena.take<Wide>(model.K);
  Wide* arrivals = arena.take<Wide>(topology.arrivals);
  Wide* alpha = arena.take<Wide>(topology.nodes);
  wide_emissions(sequence.at(0), model.K, model.scale, h);
  steps.first(h, alpha);
  for (std::int64_t t = 1; t < sequence.T; ++t) {
    wide_emissions(sequence.at(t), model.K, model.scale, h);
    steps.move(alpha, arrivals);
    steps.mix(arrivals, h, alpha);
  }
  return steps.total(alpha);
}

template <class Real>
Wide wide_marginals(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                    std::size_t keep_bytes, double* E, const WideVisit& visit) {
  if (sequence.T == 0) return wide_total(topology, model, sequence, arena);
  WideMarginals<Real> pass(topology, model, sequence, arena, E, visit);
  if (must_checkpoint(pass, sequence.T, keep_bytes)) {
    both_ways_checkpointed(pass, sequence.T, arena);
  } else {
    both_ways_kept(pass, sequence.T, arena);
  }
  return pass.z();
}

template Wide wide_total(const Topology&, const WideModel&, const Sequence<float>&, Arena&);
template Wide wide_total(const Topology&, const WideModel&, const Sequence<double>&, Arena&);
template Wide wide_marginals(const Topology&, const WideModel&, const Sequence<float>&, Arena&, std::size_t, double*,
                             const WideVisit&);
template Wide wide_marginals(const Topology&, const WideModel&, const Sequence<double>&, Arena&, std::size_t, double*,
                             const WideVisit&);

}  // namespace regccrf
