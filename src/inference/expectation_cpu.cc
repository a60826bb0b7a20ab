// Which pass a sequence gets (see expectation.h).
#include "inference/expectation.h"

#include "inference/wide_pass.h"

namespace regccrf {

template <class Real>
const WideModel& Expectations<Real>::wide_model() {
  std::call_once(wide_once_, [this] { wide_ = std::make_unique<WideModel>(batch_.scores()); });
  return *wide_;
}

template <class Real>
double Expectations<Real>::log_z(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena) {
  return log(wide_total(constraint.topology(), wide_model(), sequence, arena));
}

template <class Real>
double Expectations<Real>::operator()(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                      const Counts<Real>& counts) {
  if (!counts.wanted()) return log_z(constraint, sequence, arena);
  return wide(constraint, sequence, arena, counts);
}

template <class Real>
double Expectations<Real>::wide(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                const Counts<Real>& counts) {
  const Topology& topology = constraint.topology();
  const int K = topology.K;
  double* labels = arena.take<double>(K);
  double* E = counts.transitions ? arena.zeros<double>(static_cast<std::size_t>(K) * K) : nullptr;
  const WideVisit visit = [&](std::int64_t t, const double* nodes) {
    std::fill_n(labels, K, 0.0);
    for (std::int32_t n = 0; n < topology.nodes; ++n) labels[topology.node_label[n]] += nodes[n];
    for (int a = 0; a < K; ++a) labels[a] *= counts.weight;
    if (counts.emissions) std::copy_n(labels, K, counts.emissions + sequence.row(t) * K);
    for (int a = 0; counts.start && t == 0 && a < K; ++a) counts.start[a] += labels[a];
    for (int a = 0; counts.end && t + 1 == sequence.T && a < K; ++a) counts.end[a] += labels[a];
  };
  const Wide z = wide_marginals(topology, wide_model(), sequence, arena, batch_.options().keep_bytes, E, visit);
  if (z.m == 0 && counts.emissions) {
    for (std::int64_t t = 0; t < sequence.T; ++t) std::fill_n(counts.emissions + sequence.row(t) * K, K, Real{0});
  }
  for (int ab = 0; E && ab < K * K; ++ab) counts.transitions[ab] += counts.weight * E[ab];
  return log(z);
}

template class Expectations<float>;
template class Expectations<double>;

}  // namespace regccrf
