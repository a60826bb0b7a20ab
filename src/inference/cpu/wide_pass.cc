// Forward–backward in wide arithmetic (see wide_pass.h).
#include "inference/cpu/wide_pass.h"

#include <numeric>

namespace regccrf {

namespace {

template <class Real>
class WideMarginals : public WideForward<Real> {
 public:
  WideMarginals(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                double* E, const WideVisit& visit)
      : WideForward<Real>(topology, model, sequence, arena),
        visit_(visit),
        E_(E),
        back_(arena.take<Wide>(topology.arrivals)),
        beta_(arena.take<Wide>(topology.nodes)),
        nodes_(arena.take<double>(topology.nodes)) {}

  bool back(std::int64_t t, const Wide* alpha) {
    WideSteps& steps = this->steps_;
    const std::int32_t N = steps.topology().nodes;
    if (t + 1 == this->sequence_.T) {
      steps.last(beta_);
    } else {
      steps.mix_back(beta_, back_);
      if (E_) {
        steps.move(alpha, this->arrivals_);
        steps.add_bigrams(this->arrivals_, beta_, this->z_, E_);
      }
      steps.move_back(back_, beta_);
    }
    double sum = 0;
    for (std::int32_t n = 0; n < N; ++n) sum += nodes_[n] = ratio(alpha[n] * beta_[n], this->z_);
    for (std::int32_t n = 0; n < N; ++n) nodes_[n] /= sum;
    visit_(t, nodes_);
    this->emissions(t);
    this->weigh(beta_);
    return true;
  }

 private:
  const WideVisit& visit_;
  double* E_;
  Wide* back_;
  Wide* beta_;  // [N] between calls of back: h ⊗ beta of the step visited last
  double* nodes_;
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
  both_ways(pass, sequence.T, keep_bytes, arena);
  return pass.z();
}

template Wide wide_total(const Topology&, const WideModel&, const Sequence<float>&, Arena&);
template Wide wide_total(const Topology&, const WideModel&, const Sequence<double>&, Arena&);
template Wide wide_marginals(const Topology&, const WideModel&, const Sequence<float>&, Arena&, std::size_t, double*,
                             const WideVisit&);
template Wide wide_marginals(const Topology&, const WideModel&, const Sequence<double>&, Arena&, std::size_t, double*,
                             const WideVisit&);

}  // namespace regccrf
