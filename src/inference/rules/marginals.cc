// log_z, language mass, and label, bigram and state marginals: expected counts, put where the caller wants them.
#include <limits>

#include "inference/cpu/wide_pass.h"
#include "inference/rules/sums.h"

namespace regccrf {

template <class Real>
std::vector<double> log_z(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("log_z", constraints, scores, options, KeptRules::obeyed);
  Sums<Real> expectations(batch, kAskedGap);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const CertifiedSum sum = expectations.log_z(batch.constraint(sequence.index), sequence, arena);
    expectations.note(sequence, sum.gap);
    values[sequence.index] = sum.log_z;
  });
  return values;
}

template <class Real>
std::vector<double> language_mass(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("language_mass", constraints, scores, options, KeptRules::obeyed);
  Sums<Real> expectations(batch, kAskedGap);
  const Constraint everything = Constraint::unconstrained(batch.constraint_number(0).labels());
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const CertifiedSum legal = expectations.log_z(batch.constraint(sequence.index), sequence, arena);
    expectations.note(sequence, legal.gap);
    const double all = expectations.log_z(everything, sequence, arena).log_z;
    const bool none = legal.log_z == -std::numeric_limits<double>::infinity();
    values[sequence.index] = none ? legal.log_z : std::min(legal.log_z - all, 0.0);
  });
  return values;
}

template <class Real>
void label_marginals(const Constraints& constraints, const Scores<Real>& scores,
                     std::span<std::type_identity_t<Real>> out, const Options& options) {
  const Batch<Real> batch("label_marginals", constraints, scores, options, KeptRules::obeyed);
  check_size(batch.operation(), "the output", out.size(), scores.emissions.size(), "[rows, K]");
  Sums<Real> expectations(batch, kAskedGap);
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Counts<Real> counts{.emissions = out.data()};
    const CertifiedSum sum = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    expectations.note(sequence, sum.gap);
    if (!sum.certified()) throw no_bound_error(batch.operation(), sequence.index);
    if (sum.log_z == -std::numeric_limits<double>::infinity()) batch.impossible(sequence);
  });
}

namespace {

template <class Real>
void bigrams_under_rules(const Batch<Real>& batch, Sums<Real>& sums, const Sequence<Real>& sequence, Arena& arena,
                         std::span<Real> out) {
  const int K = sequence.K;
  const std::int64_t pairs = static_cast<std::int64_t>(K) * K;
  for (std::int64_t t = 0; t < sequence.T; ++t) std::fill_n(out.data() + sequence.row(t) * pairs, pairs, Real{0});
  if (sequence.T == 0) {
    if (!batch.constraint(sequence.index).accepts(std::span<const Label>())) batch.impossible(sequence);
    return;
  }
  const auto found =
      sums.with_automaton(batch.constraint(sequence.index), sequence, arena, [&](auto& automaton, double, double gap) {
        sums.note(sequence, gap);
        for (std::int64_t t = 0; t + 1 < sequence.T; ++t) {
          Real* rows = out.data() + sequence.row(t) * pairs;
          automaton.visit_arcs(t, [&](Label a, Label b, double p) { rows[a * K + b] += static_cast<Real>(p); });
        }
      });
  if (found == Sums<Real>::Found::impossible) batch.impossible(sequence);
  if (found == Sums<Real>::Found::uncertified) throw no_bound_error(batch.operation(), sequence.index);
}

}  // namespace

template <class Real>
void bigram_marginals(const Constraints& constraints, const Scores<Real>& scores,
                      std::span<std::type_identity_t<Real>> out, const Options& options) {
  const Batch<Real> batch("bigram_marginals", constraints, scores, options, KeptRules::obeyed);
  const std::size_t pairs = static_cast<std::size_t>(batch.K()) * batch.K();
  check_size(batch.operation(), "the output", out.size(), static_cast<std::size_t>(batch.rows()) * pairs,
             "[rows, K, K]");
  const WideModel model(batch.scores());
  Sums<Real> sums(batch, kAskedGap);
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Constraint& constraint = batch.constraint(sequence.index);
    if (constraint.memories() > 0) {
      bigrams_under_rules(batch, sums, sequence, arena, out);
      return;
    }
    double* E = arena.zeros<double>(pairs);
    const auto visit = [&](std::int64_t t, const double*) {
      std::copy_n(E, pairs, out.data() + sequence.row(t) * pairs);
      std::fill_n(E, pairs, 0.0);
    };
    const Wide z = wide_marginals(constraint.topology(), model, sequence, arena, options.keep_bytes, E, visit);
    if (z.m != 0) return;
    batch.impossible(sequence);
    for (std::int64_t t = 0; t < sequence.T; ++t) visit(t, nullptr);
  });
}

template <class Real>
void state_marginals(const Constraints& constraints, const Scores<Real>& scores,
                     std::span<std::type_identity_t<Real>> out, const Options& options) {
  const Batch<Real> batch("state_marginals", constraints, scores, options);
  std::size_t Q = 0;
  for (int c = 0; c < batch.constraints(); ++c) Q = std::max<std::size_t>(Q, batch.constraint_number(c).topology().Q);
  check_size(batch.operation(), "the output", out.size(), static_cast<std::size_t>(batch.rows()) * Q, "[rows, Q]");
  const WideModel model(batch.scores());
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Topology& topology = batch.constraint(sequence.index).topology();
    double* states = arena.take<double>(Q);
    const auto visit = [&](std::int64_t t, const double* nodes) {
      std::fill_n(states, Q, 0.0);
      for (std::int32_t n = 0; nodes && n < topology.nodes; ++n) states[topology.node_state[n]] += nodes[n];
      std::copy_n(states, Q, out.data() + sequence.row(t) * Q);
    };
    const Wide z = wide_marginals(topology, model, sequence, arena, options.keep_bytes, nullptr, visit);
    if (z.m != 0) return;
    batch.impossible(sequence);
    for (std::int64_t t = 0; t < sequence.T; ++t) visit(t, nullptr);
  });
}

#define REGCCRF_INSTANTIATE(Real)                                                                           \
  template std::vector<double> log_z(const Constraints&, const Scores<Real>&, const Options&);              \
  template std::vector<double> language_mass(const Constraints&, const Scores<Real>&, const Options&);      \
  template void label_marginals(const Constraints&, const Scores<Real>&, std::span<Real>, const Options&);  \
  template void bigram_marginals(const Constraints&, const Scores<Real>&, std::span<Real>, const Options&); \
  template void state_marginals(const Constraints&, const Scores<Real>&, std::span<Real>, const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
