// Which pass a sequence gets (see expectation.h).
#include "inference/cpu/expectation.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "inference/cpu/forward_backward.h"
#include "inference/cpu/small_pass.h"
#include "inference/cpu/wide_pass.h"
#include "inference/numerics/limits.h"

namespace regccrf {

template <class Real>
struct Expectations<Real>::Prepared {
  const Topology* topology;
  std::unique_ptr<Gains<float>> in_float;
  std::unique_ptr<Gains<double>> in_double;

  std::unique_ptr<Gains<float>>& slot(float) { return in_float; }
  std::unique_ptr<Gains<double>>& slot(double) { return in_double; }
};

template <class Real>
Expectations<Real>::Expectations(const Batch<Real>& batch) : batch_(batch) {}
template <class Real>
Expectations<Real>::~Expectations() = default;

template <class Real>
const WideModel& Expectations<Real>::wide_model() {
  const std::lock_guard lock(mutex_);
  if (!wide_) wide_ = std::make_unique<WideModel>(batch_.scores());
  return *wide_;
}

template <class Real>
typename Expectations<Real>::Prepared& Expectations<Real>::prepared(const Constraint& constraint) {
  const Topology* topology = &constraint.topology();
  auto at = std::find_if(prepared_.begin(), prepared_.end(), [&](const auto& p) { return p->topology == topology; });
  if (at != prepared_.end()) return **at;
  prepared_.push_back(std::make_unique<Prepared>());
  prepared_.back()->topology = topology;
  return *prepared_.back();
}

template <class Real>
template <class P>
const Gains<P>& Expectations<Real>::gains(const Constraint& constraint) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Gains<P>>& slot = prepared(constraint).slot(P{});
  if (!slot) slot = std::make_unique<Gains<P>>(constraint.topology(), batch_.scores());
  return *slot;
}

namespace {

double empty_sequence(const Topology& topology) {
  return topology.accepting[topology.start] ? 0 : -std::numeric_limits<double>::infinity();
}

}  // namespace

template <class Real>
double Expectations<Real>::log_z(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena) {
  if (sequence.T == 0) return empty_sequence(constraint.topology());
  if (has_small_pass(constraint.topology())) {
    const FastResult fast =
        small_counts(gains<double>(constraint), sequence, arena, Counts<Real>{}, batch_.options().keep_bytes);
    if (fast.trusted) return fast.log_z;
  } else if constexpr (std::is_same_v<Real, float>) {
    if (sequence.T <= kLongestFloat) {
      const FastResult fast = fast_log_z(gains<float>(constraint), sequence, arena);
      if (fast.trusted) return fast.log_z;
    }
    ++batch_.workspace().doubled;
  }
  const FastResult fast = fast_log_z(gains<double>(constraint), sequence, arena);
  if (fast.trusted) return fast.log_z;
  bool checkpointed = false;
  const FastResult both = fast_counts(gains<double>(constraint), sequence, arena, Counts<Real>{},
                                      batch_.options().keep_bytes, checkpointed);
  batch_.workspace().checkpointed += checkpointed;
  if (both.trusted) return both.log_z;
  ++batch_.workspace().wide;
  return log(wide_total(constraint.topology(), wide_model(), sequence, arena));
}

template <class Real>
double Expectations<Real>::operator()(const Constraint& constraint, const Sequence<Real>& sequence, Arena& arena,
                                      const Counts<Real>& counts) {
  if (!counts.wanted()) return log_z(constraint, sequence, arena);
  if (sequence.T == 0) return empty_sequence(constraint.topology());
  bool checkpointed = false;
  if (has_small_pass(constraint.topology())) {
    const FastResult fast =
        small_counts(gains<double>(constraint), sequence, arena, counts, batch_.options().keep_bytes);
    if (fast.trusted) return fast.log_z;
  } else if constexpr (std::is_same_v<Real, float>) {
    if (sequence.T <= kLongestFloat) {
      const FastResult fast =
          fast_counts(gains<float>(constraint), sequence, arena, counts, batch_.options().keep_bytes, checkpointed);
      batch_.workspace().checkpointed += checkpointed;
      if (fast.trusted) return fast.log_z;
    }
    ++batch_.workspace().doubled;
  }
  const FastResult fast =
      fast_counts(gains<double>(constraint), sequence, arena, counts, batch_.options().keep_bytes, checkpointed);
  batch_.workspace().checkpointed += checkpointed;
  if (fast.trusted) return fast.log_z;
  ++batch_.workspace().wide;
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
