// log_z with gradients, and its second derivative in a direction: a forward–backward pass on dual numbers. A dual is a
// log and the derivative of that log; a sum of duals averages the derivatives by the terms' shares, so nothing can
// cancel before the very end. One interface: curvature.h.
#include <cmath>
#include <limits>
#include <vector>

#include "inference/expectation.h"
#include "inference/gradients.h"
#include "regccrf/curvature.h"

namespace regccrf {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Dual {
  double log = kNone;
  double slope = 0;
};

Dual operator*(const Dual& x, const Dual& y) { return {x.log + y.log, x.slope + y.slope}; }

// Σ term(i) over i in [begin, end).
template <class Term>
Dual sum(std::int32_t begin, std::int32_t end, const Term& term) {
  double largest = kNone;
  for (std::int32_t i = begin; i < end; ++i) largest = std::max(largest, term(i).log);
  if (largest == kNone) return {};
  double total = 0, slope = 0;
  for (std::int32_t i = begin; i < end; ++i) {
    const Dual x = term(i);
    if (x.log == kNone) continue;
    const double share = std::exp(x.log - largest);
    total += share;
    slope += share * x.slope;
  }
  return {largest + std::log(total), slope / total};
}

// The scores and where they are going.
template <class Real>
class DualScores {
 public:
  DualScores(const Scores<Real>& scores, const Direction<Real>& direction) : scores_(scores), direction_(direction) {}

  Dual emission(std::int64_t row, Label a) const {
    return at(scores_.emissions, direction_.emissions, static_cast<std::size_t>(row * scores_.labels + a));
  }
  Dual transition(Label a, Label b) const {
    return at(scores_.transitions, direction_.transitions, static_cast<std::size_t>(a * scores_.labels + b));
  }
  Dual start(Label a) const { return at(scores_.start, direction_.start, static_cast<std::size_t>(a)); }
  Dual end(Label a) const { return at(scores_.end, direction_.end, static_cast<std::size_t>(a)); }

 private:
  static Dual at(std::span<const Real> score, std::span<const Real> slope, std::size_t i) {
    return {score.empty() ? 0.0 : static_cast<double>(score[i]), slope.empty() ? 0.0 : static_cast<double>(slope[i])};
  }
  const Scores<Real>& scores_;
  const Direction<Real>& direction_;
};

// One sequence. alpha, beta and arrivals as in topology.h.
template <class Real>
class DualPass {
 public:
  DualPass(const Topology& topology, const DualScores<Real>& scores, const Sequence<Real>& sequence)
      : topology_(topology),
        scores_(scores),
        sequence_(sequence),
        alpha_(size(topology.nodes)),
        arrivals_(size(topology.arrivals)) {}

  // The slope of log_z, with its own slope's contributions added to `counts`; −inf as a log where nothing is possible.
  Dual run(const Counts<Real>& counts) {
    if (sequence_.T == 0) return {topology_.accepting[topology_.start] ? 0.0 : kNone, 0.0};
    forward();
    const Dual z = sum(0, topology_.nodes, [&](std::int32_t n) { return alpha(sequence_.T - 1, n) * finish(n); });
    if (z.log != kNone && counts.wanted()) backward(z, counts);
    return z;
  }

 private:
  std::size_t size(std::int32_t places) const {
    return static_cast<std::size_t>(sequence_.T) * static_cast<std::size_t>(places);
  }
  Dual& alpha(std::int64_t t, std::int32_t n) { return alpha_[static_cast<std::size_t>(t * topology_.nodes + n)]; }
  Dual& arrival(std::int64_t t, std::int32_t m) {
    return arrivals_[static_cast<std::size_t>(t * topology_.arrivals + m)];
  }
  Dual emission(std::int64_t t, std::int32_t n) const {
    return scores_.emission(sequence_.row(t), topology_.node_label[n]);
  }
  Dual transition(std::int32_t m, std::int32_t n) const {
    return scores_.transition(topology_.arrival_label[m], topology_.node_label[n]);
  }
  Dual finish(std::int32_t n) const {
    return topology_.node_accepts[n] ? scores_.end(topology_.node_label[n]) : Dual{};
  }

  void forward() {
    const Topology& x = topology_;
    for (std::int32_t n = x.node_begin[x.start]; n < x.node_begin[x.start + 1]; ++n) {
      alpha(0, n) = scores_.start(x.node_label[n]) * emission(0, n);
    }
    for (std::int64_t t = 0; t + 1 < sequence_.T; ++t) {
      for (std::int32_t m = 0; m < x.arrivals; ++m) {
        arrival(t, m) =
            sum(x.into_begin[m], x.into_begin[m + 1], [&](std::int32_t i) { return alpha(t, x.into_node[i]); });
      }
      for (std::int32_t n = 0; n < x.nodes; ++n) {
        const std::int32_t r = x.node_state[n];
        alpha(t + 1, n) = emission(t + 1, n) * sum(x.arrival_begin[r], x.arrival_begin[r + 1],
                                                   [&](std::int32_t m) { return arrival(t, m) * transition(m, n); });
      }
    }
  }

  // beta leaves the emission of its own position out.
  void backward(const Dual& z, const Counts<Real>& counts) {
    const Topology& x = topology_;
    std::vector<Dual> beta(static_cast<std::size_t>(x.nodes)), later(beta.size()),
        onward(static_cast<std::size_t>(x.arrivals));
    for (std::int32_t n = 0; n < x.nodes; ++n) beta[n] = finish(n);
    add_nodes(sequence_.T - 1, beta, z, counts, counts.end);
    for (std::int64_t t = sequence_.T - 2; t >= 0; --t) {
      for (std::int32_t n = 0; n < x.nodes; ++n) later[n] = emission(t + 1, n) * beta[n];
      for (std::int32_t m = 0; m < x.arrivals; ++m) {
        const std::int32_t r = x.arrival_state[m];
        onward[m] =
            sum(x.node_begin[r], x.node_begin[r + 1], [&](std::int32_t n) { return transition(m, n) * later[n]; });
      }
      add_bigrams(t, later, z, counts);
      for (std::int32_t n = 0; n < x.nodes; ++n) {
        beta[n] = sum(x.from_begin[n], x.from_begin[n + 1], [&](std::int32_t i) { return onward[x.from_arrival[i]]; });
      }
      add_nodes(t, beta, z, counts, nullptr);
    }
    add_nodes(0, beta, z, Counts<Real>{.weight = counts.weight}, counts.start);
  }

  // The derivative of a probability whose log is x − z.
  static double moved(const Dual& x, const Dual& z) {
    return x.log == kNone ? 0 : std::exp(x.log - z.log) * (x.slope - z.slope);
  }

  void add_nodes(std::int64_t t, const std::vector<Dual>& beta, const Dual& z, const Counts<Real>& counts,
                 double* per_label) {
    if (!counts.emissions && !per_label) return;
    std::vector<double> row(static_cast<std::size_t>(topology_.K));
    for (std::int32_t n = 0; n < topology_.nodes; ++n)
      row[topology_.node_label[n]] += counts.weight * moved(alpha(t, n) * beta[n], z);
    for (Label a = 0; a < topology_.K; ++a) {
      if (counts.emissions) counts.emissions[sequence_.row(t) * topology_.K + a] = static_cast<Real>(row[a]);
      if (per_label) per_label[a] += row[a];
    }
  }

  void add_bigrams(std::int64_t t, const std::vector<Dual>& later, const Dual& z, const Counts<Real>& counts) {
    if (!counts.transitions) return;
    const Topology& x = topology_;
    for (std::int32_t n = 0; n < x.nodes; ++n) {
      const std::int32_t r = x.node_state[n];
      for (std::int32_t m = x.arrival_begin[r]; m < x.arrival_begin[r + 1]; ++m) {
        counts.transitions[x.arrival_label[m] * x.K + x.node_label[n]] +=
            counts.weight * moved(arrival(t, m) * transition(m, n) * later[n], z);
      }
    }
  }

  const Topology& topology_;
  const DualScores<Real>& scores_;
  const Sequence<Real>& sequence_;
  std::vector<Dual> alpha_;     // [T, nodes]
  std::vector<Dual> arrivals_;  // [T, arrivals]
};

template <class Real>
void check_direction(const Batch<Real>& batch, const Direction<Real>& direction) {
  const auto K = static_cast<std::size_t>(batch.K());
  const auto check = [&](const char* what, std::size_t given, std::size_t expected, const char* shape) {
    if (given != 0) check_size(batch.operation(), what, given, expected, shape);
  };
  check("the emissions' direction", direction.emissions.size(), static_cast<std::size_t>(batch.rows()) * K,
        "[rows, K]");
  check("the transitions' direction", direction.transitions.size(), K * K, "[K, K]");
  check("the start scores' direction", direction.start.size(), K, "[K]");
  check("the end scores' direction", direction.end.size(), K, "[K]");
}

}  // namespace

template <class Real>
Loss log_z(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
           const Options& options) {
  const Batch<Real> batch("log_z", constraints, scores, options);
  GradientSums<Real> sums(batch, gradients);
  Expectations<Real> expectations(batch);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int member, Arena& arena) {
    const Counts<Real> counts = sums.counts(sequence, member);
    values[sequence.index] = expectations(batch.constraint(sequence.index), sequence, arena, counts);
    if (values[sequence.index] == kNone) batch.impossible(sequence);
  });
  sums.finish();
  return {std::move(values), 0};
}

template <class Real>
Loss curvature(const Constraints& constraints, const Scores<Real>& scores, const Direction<Real>& direction,
               const Gradients<Real>& gradients, const Options& options) {
  const Batch<Real> batch("curvature", constraints, scores, options);
  check_direction(batch, direction);
  GradientSums<Real> sums(batch, gradients);
  const DualScores<Real> duals(scores, direction);
  std::vector<double> values(static_cast<std::size_t>(batch.size()));
  batch.each([&](const Sequence<Real>& sequence, int member, Arena&) {
    const Counts<Real> counts = sums.counts(sequence, member);
    const Dual z = DualPass<Real>(batch.constraint(sequence.index).topology(), duals, sequence).run(counts);
    values[sequence.index] = z.slope;
    if (z.log != kNone) return;
    batch.impossible(sequence);
    clear_rows(counts, sequence);
  });
  sums.finish();
  return {std::move(values), 0};
}

#define REGCCRF_INSTANTIATE(Real)                                                                                  \
  template Loss log_z(const Constraints&, const Scores<Real>&, const Gradients<Real>&, const Options&);            \
  template Loss curvature(const Constraints&, const Scores<Real>&, const Direction<Real>&, const Gradients<Real>&, \
                          const Options&)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
