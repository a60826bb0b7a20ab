// log_z, language mass, and label, bigram and state marginals: expected counts, put where the caller wants them.
#include <limits>

#include "inference/cpu/expectation.h"
#include "inference/cpu/wide_pass.h"

namespace regccrf {

template <class Real>
std::vector<double> log_z(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("log_z", constraints, scores, options);
  Expectations<Real> expectations(batch);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    values[sequence.index] = expectations.log_z(batch.constraint(sequence.index), sequence, arena);
  });
  return values;
}

template <class Real>
std::vector<double> language_mass(const Constraints& constraints, const Scores<Real>& scores, const Options& options) {
  const Batch<Real> batch("language_mass", constraints, scores, options);
  Expectations<Real> expectations(batch);
  const Constraint everything = Constraint::unconstrained(batch.constraint_number(0).labels());
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const double legal = expectations.log_z(batch.constraint(sequence.index), sequence, arena);
    const double all = expectations.log_z(everything, sequence, arena);
    const bool none = legal == -std::numeric_limits<double>::infinity();
    values[sequence.index] = none ? legal : std::min(legal - all, 0.0);
  });
  return values;
}

template <class Real>
void label_marginals(const Constraints& constraints, const Scores<Real>& scores, std::span<Real> out,
                     const Options& options) {
  const Batch<Real> batch("label_marginals", constraints, scores, options);
  check_size(batch.operation(), "the output", out.size(), scores.emissions.size(), "[rows, K]");
  Expectations<Real> expectations(batch);
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    const Counts<Real> counts{.emissions = out.data()};
    const double z = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    if (z == -std::numeric_limits<double>::infinity()) batch.impossible(sequence);
  });
}

template <class Real>
void bigram_marginals(const Constraints& constraints, const Scores<Real>& scores, std::span<Real> out,
                      const Options& options) {
  const Batch<Real> batch("bigram_marginals", constraints, scores, options);
  const std::size_t pairs = static_cast<std::size_t>(batch.K()) * batch.K();
  check_size(batch.operation(), "the output", out.size(), static_cast<std::size_t>(batch.rows()) * pairs,
             "[rows, K, K]");
  const WideModel model(batch.scores());
  batch.each([&](const Sequence<Real>& sequence, int, Arena& arena) {
    double* E = arena.zeros<double>(pairs);
    const auto visit = [&](std::int64_t t, const double*) {
      std::copy_n(E, pairs, out.data() + sequence.row(t) * pairs);
      std::fill_n(E, pairs, 0.0);
    };
    const Wide z = wide_marginals(batch.constraint(sequence.index).topology(), model, sequence, arena,
                                  options.keep_bytes, E, visit);
    if (z.m != 0) return;
    batch.impossible(sequence);
    for (std::int64_t t = 0; t < sequence.T; ++t) visit(t, nullptr);
  });
}

template <class Real>
void state_marginals(const Constraints& constraints, const Scores<Real>& scores, std::span<Real> out,
                     const Options& options) {
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
