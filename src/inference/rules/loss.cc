// Losses: differences of log_z, with differences of expected counts as gradients. Under rules that are kept both come
// with a gap (sums.h).
#include "regccrf/loss.h"

#include <cmath>
#include <limits>
#include <string>

#include "automaton/automaton.h"
#include "automaton/lengths.h"
#include "inference/cpu/gradients.h"
#include "inference/cpu/path_score.h"
#include "inference/rules/sums.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// One sequence's gold, without absent positions.
template <class Real>
const Label* gold_of(const Batch<Real>& batch, const Sequence<Real>& sequence, std::span<const Label> gold,
                     Arena& arena) {
  Label* labels = arena.take<Label>(static_cast<std::size_t>(sequence.T));
  for (std::int64_t t = 0; t < sequence.T; ++t) {
    labels[t] = gold[sequence.row(t)];
    if (labels[t] >= 0 && labels[t] < batch.K()) continue;
    throw Error(at(batch.operation(), sequence.index) + ", position " + std::to_string(t) + ": label " +
                    std::to_string(labels[t]) + " is not in 0 … " + std::to_string(batch.K() - 1) +
                    (labels[t] < 0 ? "; a position without a label must be masked" : ""),
                ErrorKind::invalid, {sequence.index, t});
  }
  return labels;
}

template <class Real>
void subtract_path(const Counts<Real>& counts, const Sequence<Real>& sequence, const Label* y) {
  const std::int64_t T = sequence.T;
  if (T == 0) return;
  const int K = sequence.K;
  for (std::int64_t t = 0; counts.emissions && t < T; ++t)
    counts.emissions[sequence.row(t) * K + y[t]] -= static_cast<Real>(counts.weight);
  for (std::int64_t t = 0; counts.transitions && t + 1 < T; ++t)
    counts.transitions[y[t] * K + y[t + 1]] -= counts.weight;
  if (counts.start) counts.start[y[0]] -= counts.weight;
  if (counts.end) counts.end[y[T - 1]] -= counts.weight;
}

// counts −= expected counts of another distribution over the same sequence; returns that one's log_z.
template <class Real>
CertifiedSum subtract_expected(Sums<Real>& expectations, const Constraint& constraint, const Sequence<Real>& sequence,
                               const Sequence<Real>& other, Arena& arena, const Counts<Real>& counts) {
  Counts<Real> less = counts;
  less.weight = -counts.weight;
  if (!counts.emissions) return expectations(constraint, other, arena, less);
  // Laid out without gaps, so that a sequence's rows are 0 … T-1.
  Sequence<Real> dense = other;
  const std::size_t size = static_cast<std::size_t>(sequence.T) * sequence.K;
  Real* copy = arena.take<Real>(size);
  for (std::int64_t t = 0; t < sequence.T; ++t) std::copy_n(other.at(t), sequence.K, copy + t * sequence.K);
  dense.emissions = copy;
  dense.first = 0;
  dense.stride = 1;
  dense.rows = nullptr;
  less.emissions = arena.take<Real>(size);
  const CertifiedSum z = expectations(constraint, dense, arena, less);
  for (std::int64_t t = 0; t < sequence.T; ++t) {
    Real* row = counts.emissions + sequence.row(t) * sequence.K;
    for (int a = 0; a < sequence.K; ++a) row[a] += less.emissions[t * sequence.K + a];
  }
  return z;
}

// The sequence with −inf for what is not allowed.
template <class Real>
Sequence<Real> restrict(const Sequence<Real>& sequence, std::span<const std::uint8_t> allowed, Arena& arena) {
  const int K = sequence.K;
  Real* emissions = arena.take<Real>(static_cast<std::size_t>(sequence.T) * K);
  for (std::int64_t t = 0; t < sequence.T; ++t) {
    const std::uint8_t* row = allowed.data() + sequence.row(t) * K;
    const Real* h = sequence.at(t);
    for (int a = 0; a < K; ++a) emissions[t * K + a] = row[a] ? h[a] : -std::numeric_limits<Real>::infinity();
  }
  return {sequence.index, sequence.T, K, emissions, 0, 1, nullptr};
}

// log_z minus a part of it. What is exact is not below 0; under rules it may be, by at most log(1 + gap), and it stays,
// so that values and gradients belong together.
double difference(const Constraint& constraint, double z, double part) {
  return constraint.memories() > 0 ? z - part : std::max(z - part, 0.0);
}

// A bound on one sum is no bound on a difference: where either sum is not certain, both are the base's.
template <class Real>
double partial_loss(Sums<Real>& expectations, const Constraint& constraint, const Sequence<Real>& sequence,
                    const Sequence<Real>& restricted, CertifiedSum consistent, Arena& arena,
                    const Counts<Real>& counts) {
  const CertifiedSum all =
      expectations(consistent.certified() ? constraint : constraint.base(), sequence, arena, counts);
  const bool certain = consistent.certified() && all.certified();
  const Constraint& of_both = certain ? constraint : constraint.base();
  if (counts.wanted()) {
    consistent = subtract_expected(expectations, of_both, sequence, restricted, arena, counts);
  } else if (!certain) {
    consistent = expectations.log_z(of_both, restricted, arena);
  }
  expectations.note(sequence, certain ? (1 + all.gap) * (1 + consistent.gap) - 1 : kInfinite);
  return difference(of_both, all.log_z, consistent.log_z);
}

// Membership tests, one for each member and constraint.
class Tracers {
 public:
  Tracers(int members, int constraints) : tracers_(static_cast<std::size_t>(members)) {
    for (auto& some : tracers_) some.resize(static_cast<std::size_t>(constraints));
  }
  Membership membership(int member, int c, const Constraint& constraint, std::span<const Label> y) {
    if (constraint.memories() > 0) return constraint.accepts(y);
    if (accepts_everything(constraint.topology())) {
      Membership yes;
      yes.accepted = true;
      return yes;
    }
    std::unique_ptr<Tracer>& tracer = tracers_[member][c];
    if (!tracer) tracer = std::make_unique<Tracer>(constraint.automaton());
    return tracer->trace(y.data(), y.size());
  }

 private:
  std::vector<std::vector<std::unique_ptr<Tracer>>> tracers_;
};

}  // namespace

template <class Real>
Loss nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const Label> gold,
         const Gradients<Real>& gradients, const LossOptions& options) {
  const Batch<Real> batch("nll", constraints, scores, options, KeptRules::obeyed);
  check_size(batch.operation(), "correct labels", gold.size(), static_cast<std::size_t>(batch.rows()), "[rows]");
  GradientSums<Real> sums(batch, gradients);
  Sums<Real> expectations(batch, kLossGap);
  Tracers tracers(batch.members(), batch.constraints());
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const Constraint& constraint = batch.constraint(sequence.index);
    const Label* y = gold_of(batch, sequence, gold, arena);
    const Membership membership =
        tracers.membership(member, batch.which(sequence.index), constraint, {y, static_cast<std::size_t>(sequence.T)});
    const double score = path_score(batch.scores(), sequence, y);
    if (!membership || score == kNone) {
      if (options.outside == OutsideGold::error) {
        if (membership) throw forbidden_gold_error("nll", sequence.index);
        throw outside_error("nll", sequence.index, sequence.T, constraint, y, membership);
      }
      clear_rows(counts, sequence);
      loss.skipped[sequence.index] = 1;
      return;
    }
    const CertifiedSum z = expectations(constraint, sequence, arena, counts);
    expectations.note(sequence, z.gap);
    subtract_path(counts, sequence, y);
    loss.values[sequence.index] = difference(constraint, z.log_z, score);
  });
  sums.finish();
  return loss;
}

template <class Real>
Loss partial_nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const std::uint8_t> allowed,
                 const Gradients<Real>& gradients, const LossOptions& options) {
  const Batch<Real> batch("partial_nll", constraints, scores, options, KeptRules::obeyed);
  check_size(batch.operation(), "allowed", allowed.size(), scores.emissions.size(), "[rows, K]");
  GradientSums<Real> sums(batch, gradients);
  Sums<Real> expectations(batch, kLossGap);
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const Constraint& constraint = batch.constraint(sequence.index);
    const Sequence<Real> restricted = restrict(sequence, allowed, arena);
    const CertifiedSum consistent = expectations.log_z(constraint, restricted, arena);
    if (consistent.log_z == kNone) {
      if (options.outside == OutsideGold::error) {
        if (!lengths_around(constraint.base().automaton(), sequence.T).has)
          throw impossible_error("partial_nll", sequence.index, sequence.T, constraint);
        throw Error(at("partial_nll", sequence.index) +
                        ": no sequence of the language with a finite score is allowed at every position",
                    ErrorKind::outside, {sequence.index, {}});
      }
      clear_rows(counts, sequence);
      loss.skipped[sequence.index] = 1;
      return;
    }
    loss.values[sequence.index] =
        partial_loss(expectations, constraint, sequence, restricted, consistent, arena, counts);
  });
  sums.finish();
  return loss;
}

template <class Real>
Loss language_mass(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
                   const Options& options) {
  const Batch<Real> batch("language_mass", constraints, scores, options, KeptRules::obeyed);
  GradientSums<Real> sums(batch, gradients);
  Sums<Real> expectations(batch, kLossGap);
  const Constraint everything = Constraint::unconstrained(batch.constraint_number(0).labels());
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const CertifiedSum legal = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    expectations.note(sequence, legal.gap);
    if (legal.log_z == kNone) {
      batch.impossible(sequence);
      loss.values[sequence.index] = kNone;
      return;
    }
    const CertifiedSum all = subtract_expected(expectations, everything, sequence, sequence, arena, counts);
    loss.values[sequence.index] = std::min(0.0, legal.log_z - all.log_z);
  });
  sums.finish();
  return loss;
}

template <class Real>
Loss log_z(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
           const Options& options) {
  const Batch<Real> batch("log_z", constraints, scores, options, KeptRules::obeyed);
  GradientSums<Real> sums(batch, gradients);
  Sums<Real> expectations(batch, kAskedGap);
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const CertifiedSum sum = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    expectations.note(sequence, sum.gap);
    loss.values[sequence.index] = sum.log_z;
    if (sum.log_z == kNone) batch.impossible(sequence);
  });
  sums.finish();
  return loss;
}

#define REGCCRF_INSTANTIATE(Real)                                                                               \
  template Loss nll(const Constraints&, const Scores<Real>&, std::span<const Label>, const Gradients<Real>&,    \
                    const LossOptions&);                                                                        \
  template Loss partial_nll(const Constraints&, const Scores<Real>&, std::span<const std::uint8_t>,             \
                            const Gradients<Real>&, const LossOptions&);                                        \
  template Loss language_mass(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&); \
  template Loss log_z(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
