#include "tests/oracle/dense.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace regccrf::oracle {

namespace {

constexpr Real impossible = -std::numeric_limits<Real>::infinity();

Real log_add(Real x, Real y) {
  if (x < y) std::swap(x, y);
  return y == impossible ? x : x + std::log1p(std::exp(y - x));
}

Real probability(Real log_weight) { return log_weight == impossible ? 0 : std::exp(log_weight); }

// Subtracts the row's log-sum, and returns it.
Real normalize_row(Real* row, std::size_t size) {
  Real total = impossible;
  for (std::size_t i = 0; i < size; ++i) total = log_add(total, row[i]);
  if (total == impossible) return total;
  for (std::size_t i = 0; i < size; ++i) row[i] -= total;
  return total;
}

class Pass {
 public:
  Pass(const Automaton& automaton, const Scores& scores)
      : automaton_(automaton), scores_(scores), T_(static_cast<std::size_t>(scores.length)), A_(automaton.arcs.size()) {
    for (std::size_t e = 0; e < A_; ++e) {
      for (std::size_t f = 0; f < A_; ++f) {
        if (arc(e).to == arc(f).from) neighbours_.emplace_back(e, f);
      }
    }
  }

  DenseResult run() {
    DenseResult result;
    const std::size_t K = static_cast<std::size_t>(scores_.labels);
    result.labels.assign(T_ * K, 0);
    result.bigrams.assign(K * K, 0);
    result.start.assign(K, 0);
    result.end.assign(K, 0);
    if (T_ == 0) {
      result.log_z = result.best = automaton_.accepting[automaton_.start] ? 0 : impossible;
      return result;
    }
    result.best = viterbi();
    result.log_z = forward();
    if (result.log_z == impossible) return result;
    backward();
    for (std::size_t t = 0; t < T_; ++t) add_labels(t, result);
    for (std::size_t t = 0; t + 1 < T_; ++t) add_bigrams(t, result);
    return result;
  }

 private:
  const Arc& arc(std::size_t e) const { return automaton_.arcs[e]; }
  Real h(std::size_t t, std::size_t e) const { return scores_.emission(static_cast<int>(t), arc(e).label); }
  Real g(std::size_t e, std::size_t f) const { return scores_.transition(arc(e).label, arc(f).label); }
  Real first(std::size_t e) const {
    return arc(e).from == automaton_.start ? h(0, e) + scores_.at_start(arc(e).label) : impossible;
  }
  Real last(std::size_t e) const {
    return automaton_.accepting[arc(e).to] ? Real{scores_.at_end(arc(e).label)} : impossible;
  }

  Real viterbi() const {
    std::vector<Real> score(A_), next(A_);
    for (std::size_t e = 0; e < A_; ++e) score[e] = first(e);
    for (std::size_t t = 1; t < T_; ++t) {
      std::fill(next.begin(), next.end(), impossible);
      for (const auto& [e, f] : neighbours_) next[f] = std::max(next[f], score[e] + g(e, f) + h(t, f));
      std::swap(score, next);
    }
    Real best = impossible;
    for (std::size_t e = 0; e < A_; ++e) best = std::max(best, score[e] + last(e));
    return best;
  }

  Real forward() {
    alpha_.assign(T_ * A_, impossible);
    for (std::size_t e = 0; e < A_; ++e) alpha_[e] = first(e);
    Real log_z = normalize_row(&alpha_[0], A_);
    for (std::size_t t = 1; t < T_; ++t) {
      const Real* before = &alpha_[(t - 1) * A_];
      Real* now = &alpha_[t * A_];
      for (const auto& [e, f] : neighbours_) now[f] = log_add(now[f], before[e] + g(e, f));
      for (std::size_t f = 0; f < A_; ++f) now[f] += h(t, f);
      log_z += normalize_row(now, A_);
    }
    Real rest = impossible;
    for (std::size_t e = 0; e < A_; ++e) rest = log_add(rest, alpha_[(T_ - 1) * A_ + e] + last(e));
    return log_z + rest;
  }

  void backward() {
    beta_.assign(T_ * A_, impossible);
    for (std::size_t e = 0; e < A_; ++e) beta_[(T_ - 1) * A_ + e] = last(e);
    normalize_row(&beta_[(T_ - 1) * A_], A_);
    for (std::size_t t = T_ - 1; t-- > 0;) {
      const Real* after = &beta_[(t + 1) * A_];
      Real* now = &beta_[t * A_];
      for (const auto& [e, f] : neighbours_) now[e] = log_add(now[e], g(e, f) + h(t + 1, f) + after[f]);
      normalize_row(now, A_);
    }
  }

  // The probability of each arc at position t.
  std::vector<Real> arcs_at(std::size_t t) const {
    std::vector<Real> row(A_);
    for (std::size_t e = 0; e < A_; ++e) row[e] = alpha_[t * A_ + e] + beta_[t * A_ + e];
    normalize_row(row.data(), A_);
    for (Real& value : row) value = probability(value);
    return row;
  }

  void add_labels(std::size_t t, DenseResult& result) const {
    const std::vector<Real> p = arcs_at(t);
    for (std::size_t e = 0; e < A_; ++e) {
      result.labels[t * static_cast<std::size_t>(scores_.labels) + arc(e).label] += p[e];
      if (t == 0) result.start[arc(e).label] += p[e];
      if (t + 1 == T_) result.end[arc(e).label] += p[e];
      if (t == 0 && p[e] > 0) result.entropy -= p[e] * std::log(p[e]);
    }
  }

  // Pairs of arcs at t and t+1; the entropy grows by that of the second given the first.
  void add_bigrams(std::size_t t, DenseResult& result) const {
    std::vector<Real> row(neighbours_.size()), given(A_, impossible);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto& [e, f] = neighbours_[i];
      row[i] = alpha_[t * A_ + e] + g(e, f) + h(t + 1, f) + beta_[(t + 1) * A_ + f];
      given[e] = log_add(given[e], row[i]);
    }
    const std::vector<Real> conditional = conditionals(row, given);
    normalize_row(row.data(), row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Real p = probability(row[i]);
      const auto& [e, f] = neighbours_[i];
      result
          .bigrams[static_cast<std::size_t>(arc(e).label) * static_cast<std::size_t>(scores_.labels) + arc(f).label] +=
          p;
      if (p > 0) result.entropy -= p * conditional[i];
    }
  }

  std::vector<Real> conditionals(const std::vector<Real>& row, const std::vector<Real>& given) const {
    std::vector<Real> log_p(row.size(), impossible);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] != impossible) log_p[i] = row[i] - given[neighbours_[i].first];
    }
    return log_p;
  }

  const Automaton& automaton_;
  const Scores& scores_;
  const std::size_t T_, A_;
  std::vector<std::pair<std::size_t, std::size_t>> neighbours_;  // arcs (e, f) with e.to == f.from
  std::vector<Real> alpha_, beta_;                               // [T, A]
};

}  // namespace

DenseResult dense(const Automaton& automaton, const Scores& scores) { return Pass(automaton, scores).run(); }

}  // namespace regccrf::oracle
