// Entropy of P(y | x, L) and its gradients. Accepting paths and sequences are one and the same (the automaton is
// unambiguous), so the entropy is the mean of −log P(y) over paths, a sum of local conditional entropies in which
// nothing cancels; and its gradient is the covariance of counts with −log P(y).
//
// Under rules that are kept: the same for the sequence's own automaton (sums.h). The value is certified, its gradient
// is not.
#include "inference/cpu/covariance.h"
#include "inference/rules/sums.h"
#include "regccrf/loss.h"

namespace regccrf {

namespace {

// No score adds to it but by way of probabilities.
struct PathSurprise : Surprise {
  double emission(std::int64_t, std::int32_t) const { return 0; }
  double transition(std::int32_t, std::int32_t) const { return 0; }
  double start(std::int32_t) const { return 0; }
  double end(std::int32_t) const { return 0; }
};

template <class Real>
double entropy_under_rules(const Batch<Real>& batch, Sums<Real>& sums, const Sequence<Real>& sequence, Arena& arena,
                           const Counts<Real>& counts) {
  const Constraint& constraint = batch.constraint(sequence.index);
  const int K = sequence.K;
  clear_rows(counts, sequence);
  if (sequence.T == 0) {
    if (!constraint.accepts(std::span<const Label>())) batch.impossible(sequence);
    return 0;
  }
  double value = 0;
  const auto found = sums.with_automaton(constraint, sequence, arena, [&](auto& automaton, double, double gap) {
    sums.note(sequence, gap);
    value = automaton.entropy();
    for (std::int64_t t = 0; t < sequence.T && counts.wanted(); ++t) {
      automaton.visit_node_covariances(t, [&](Label a, double c) {
        if (counts.emissions) counts.emissions[sequence.row(t) * K + a] += static_cast<Real>(counts.weight * c);
        if (counts.start && t == 0) counts.start[a] += counts.weight * c;
        if (counts.end && t + 1 == sequence.T) counts.end[a] += counts.weight * c;
      });
      if (!counts.transitions || t + 1 == sequence.T) continue;
      automaton.visit_arc_covariances(
          t, [&](Label a, Label b, double c) { counts.transitions[a * K + b] += counts.weight * c; });
    }
  });
  if (found == Sums<Real>::Found::impossible) batch.impossible(sequence);
  if (found == Sums<Real>::Found::uncertified) throw no_bound_error(batch.operation(), sequence.index);
  return value;
}

}  // namespace

template <class Real>
Loss entropy(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
             const Options& options) {
  const Batch<Real> batch("entropy", constraints, scores, options, KeptRules::obeyed);
  Sums<Real> sums(batch, kLossGap);
  return covariance(batch, PathSurprise{}, gradients,
                    [&](const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts) {
                      return entropy_under_rules(batch, sums, sequence, arena, counts);
                    });
}

template <class Real>
std::vector<double> entropy(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  Options asked = options;
  asked.max_gap = options.max_gap.value_or(kAskedGap);
  return entropy(constraints, scores, Gradients<Real>{}, asked).values;
}

#define REGCCRF_INSTANTIATE(Real)                                                                         \
  template Loss entropy(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&); \
  template std::vector<double> entropy(const Constraints&, const Scores<Real>&, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
