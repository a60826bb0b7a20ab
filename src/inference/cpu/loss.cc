// Losses: differences of log_z, with differences of expected counts as gradients.
#include "regccrf/loss.h"

#include <cmath>
#include <limits>
#include <string>

#include "automaton/automaton.h"
#include "automaton/lengths.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/gradients.h"
#include "inference/cpu/path_score.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// One sequence's gold, without absent positions.
template <class Real>
const Label* gold_of(const Batch<Real>& batch, const Sequence<Real>& sequence, std::span<const Label> gold,
                     Arena& arena) {
  Label* labels = arena.take<Label>(static_cast<std::size_t>(sequence.T));
  for (std::int64_t t = 0; t < sequence.T; ++t) {
    labels[t] = gold[sequence.row(t)];
    if (labels[t] >= 0 && labels[t] < batch.K()) continue;
    throw Error(at(batch.operation(), sequence.index) + ", position " + std::to_string(t) + ": gold label " +
                    std::to_string(labels[t]) + " is not in 0 … " + std::to_string(batch.K() - 1) +
                    (labels[t] < 0 ? "; positions without gold are left out by the mask" : ""),
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
double subtract_expected(Expectations<Real>& expectations, const Constraint& constraint, const Sequence<Real>& sequence,
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
  const double z = expectations(constraint, dense, arena, less);
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

// Membership tests, one for each member and constraint.
class Tracers {
 public:
  Tracers(int members, int constraints) : tracers_(static_cast<std::size_t>(members)) {
    for (auto& some : tracers_) some.resize(static_cast<std::size_t>(constraints));
  }
  Tracer& of(int member, int c, const Constraint& constraint) {
    std::unique_ptr<Tracer>& tracer = tracers_[member][c];
    if (!tracer) tracer = std::make_unique<Tracer>(constraint.automaton());
    return *tracer;
  }

 private:
  std::vector<std::vector<std::unique_ptr<Tracer>>> tracers_;
};

}  // namespace

template <class Real>
Loss nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const Label> gold,
         const Gradients<Real>& gradients, const LossOptions& options) {
  const Batch<Real> batch("nll", constraints, scores, options);
  check_size(batch.operation(), "gold", gold.size(), static_cast<std::size_t>(batch.rows()), "[rows]");
  GradientSums<Real> sums(batch, gradients);
  Expectations<Real> expectations(batch);
  Tracers tracers(batch.members(), batch.constraints());
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const Constraint& constraint = batch.constraint(sequence.index);
    const Label* y = gold_of(batch, sequence, gold, arena);
    Membership membership;
    membership.accepted = accepts_everything(constraint.topology());
    if (!membership) {
      membership =
          tracers.of(member, batch.which(sequence.index), constraint).trace(y, static_cast<std::size_t>(sequence.T));
    }
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
    const double z = expectations(constraint, sequence, arena, counts);
    subtract_path(counts, sequence, y);
    loss.values[sequence.index] = std::max(z - score, 0.0);
  });
  sums.finish();
  return loss;
}

template <class Real>
Loss partial_nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const std::uint8_t> allowed,
                 const Gradients<Real>& gradients, const LossOptions& options) {
  const Batch<Real> batch("partial_nll", constraints, scores, options);
  check_size(batch.operation(), "allowed", allowed.size(), scores.emissions.size(), "[rows, K]");
  GradientSums<Real> sums(batch, gradients);
  Expectations<Real> expectations(batch);
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const Constraint& constraint = batch.constraint(sequence.index);
    const Sequence<Real> restricted = restrict(sequence, allowed, arena);
    const double consistent = expectations.log_z(constraint, restricted, arena);
    if (consistent == kNone) {
      if (options.outside == OutsideGold::error) {
        if (!lengths_around(constraint.automaton(), sequence.T).has)
          throw impossible_error("partial_nll", sequence.index, sequence.T, constraint);
        throw Error(at("partial_nll", sequence.index) +
                        ": no sequence of the language with a finite score is allowed at every position",
                    ErrorKind::outside, {sequence.index, {}});
      }
      clear_rows(counts, sequence);
      loss.skipped[sequence.index] = 1;
      return;
    }
    const double z = expectations(constraint, sequence, arena, counts);
    if (counts.wanted()) subtract_expected(expectations, constraint, sequence, restricted, arena, counts);
    loss.values[sequence.index] = std::max(z - consistent, 0.0);
  });
  sums.finish();
  return loss;
}

template <class Real>
Loss language_mass(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
                   const Options& options) {
  const Batch<Real> batch("language_mass", constraints, scores, options);
  GradientSums<Real> sums(batch, gradients);
  Expectations<Real> expectations(batch);
  const Constraint everything = Constraint::unconstrained(batch.constraint_number(0).labels());
  Loss loss(batch.size());
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const double legal = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    if (legal == kNone) {
      batch.impossible(sequence);
      loss.values[sequence.index] = kNone;
      return;
    }
    loss.values[sequence.index] =
        std::min(0.0, legal - subtract_expected(expectations, everything, sequence, sequence, arena, counts));
  });
  sums.finish();
  return loss;
}

#define REGCCRF_INSTANTIATE(Real)                                                                            \
  template Loss nll(const Constraints&, const Scores<Real>&, std::span<const Label>, const Gradients<Real>&, \
                    const LossOptions&);                                                                     \
  template Loss partial_nll(const Constraints&, const Scores<Real>&, std::span<const std::uint8_t>,          \
                            const Gradients<Real>&, const LossOptions&);                                     \
  template Loss language_mass(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
