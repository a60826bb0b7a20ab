#include "tests/oracle/enumerate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/oracle/automata.h"

namespace regccrf::oracle {

namespace {

constexpr Real impossible = -std::numeric_limits<Real>::infinity();

std::vector<std::vector<bool>> finishing_states(const Automaton& automaton, int length) {
  std::vector<std::vector<bool>> finishes = {{automaton.accepting.begin(), automaton.accepting.end()}};
  for (int n = 1; n <= length; ++n) {
    std::vector<bool> now(automaton.accepting.size(), false);
    for (const Arc& arc : automaton.arcs) {
      if (finishes.back()[arc.to]) now[arc.from] = true;
    }
    finishes.push_back(std::move(now));
  }
  return finishes;
}

std::vector<Real> normalized(std::span<const Real> log_weights) {
  const Real total = log_sum_exp(log_weights);
  std::vector<Real> probability(log_weights.size(), 0);
  if (total == impossible) return probability;
  for (std::size_t i = 0; i < probability.size(); ++i) probability[i] = std::exp(log_weights[i] - total);
  return probability;
}

std::vector<Real> scores_of(const std::vector<Path>& paths) {
  std::vector<Real> scores;
  for (const Path& path : paths) scores.push_back(path.score);
  return scores;
}

void subtract(std::vector<Real>& x, const std::vector<Real>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
}

}  // namespace

Real log_sum_exp(std::span<const Real> values) {
  if (values.empty()) return impossible;
  const Real largest = *std::max_element(values.begin(), values.end());
  if (largest == impossible) return impossible;
  Real sum = 0;
  for (Real value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

Counts operator-(const Counts& x, const Counts& y) {
  Counts difference = x;
  subtract(difference.labels, y.labels);
  subtract(difference.pairs, y.pairs);
  subtract(difference.bigrams, y.bigrams);
  if (x.states.size() == y.states.size()) subtract(difference.states, y.states);
  subtract(difference.start, y.start);
  subtract(difference.end, y.end);
  return difference;
}

Enumeration::Enumeration(const Automaton& automaton, const Scores& scores)
    : automaton_(automaton), scores_(scores), finishes_(finishing_states(automaton, scores.length)) {
  Path path{{}, {automaton.start}, 0};
  extend(path);
  std::sort(paths_.begin(), paths_.end(), [](const Path& x, const Path& y) { return x.labels < y.labels; });
  for (std::size_t i = 1; i < paths_.size(); ++i) {
    if (paths_[i - 1].labels == paths_[i].labels) throw std::logic_error("a sequence has two paths");
  }
  log_z_ = log_sum_exp(scores_of(paths_));
  probability_ = normalized(scores_of(paths_));
}

void Enumeration::extend(Path& path) {
  const std::size_t left = static_cast<std::size_t>(scores_.length) - path.labels.size();
  const State state = path.states.back();
  if (!finishes_[left][state]) return;
  if (left == 0) {
    path.score = score_of(scores_, path.labels);
    paths_.push_back(path);
    return;
  }
  for (const Arc& arc : automaton_.arcs) {
    if (arc.from != state) continue;
    path.labels.push_back(arc.label);
    path.states.push_back(arc.to);
    extend(path);
    path.labels.pop_back();
    path.states.pop_back();
  }
}

Real Enumeration::best() const {
  Real best = impossible;
  for (const Path& path : paths_) best = std::max(best, path.score);
  return best;
}

std::vector<Path> Enumeration::k_best(std::size_t k) const {
  std::vector<Path> sorted;
  for (const Path& path : paths_) {
    if (path.score != impossible) sorted.push_back(path);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Path& x, const Path& y) { return x.score > y.score; });
  if (sorted.size() > k) sorted.resize(k);
  return sorted;
}

std::vector<Real> Enumeration::probabilities(Real temperature) const {
  std::vector<Real> scores = scores_of(paths_);
  for (Real& score : scores) score /= temperature;
  return normalized(scores);
}

Counts Enumeration::counts(std::span<const Real> weight) const {
  const std::size_t T = static_cast<std::size_t>(scores_.length), K = static_cast<std::size_t>(scores_.labels);
  const std::size_t Q = automaton_.accepting.size();
  Counts sum;
  sum.labels.assign(T * K, 0);
  sum.pairs.assign(T > 1 ? (T - 1) * K * K : 0, 0);
  sum.bigrams.assign(K * K, 0);
  sum.states.assign((T + 1) * Q, 0);
  sum.start.assign(K, 0);
  sum.end.assign(K, 0);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const Path& path = paths_[i];
    for (std::size_t t = 0; t <= T; ++t) sum.states[t * Q + path.states[t]] += weight[i];
    for (std::size_t t = 0; t < T; ++t) sum.labels[t * K + path.labels[t]] += weight[i];
    for (std::size_t t = 0; t + 1 < T; ++t) {
      const std::size_t bigram = path.labels[t] * K + path.labels[t + 1];
      sum.pairs[t * K * K + bigram] += weight[i];
      sum.bigrams[bigram] += weight[i];
    }
    if (T == 0) continue;
    sum.start[path.labels.front()] += weight[i];
    sum.end[path.labels.back()] += weight[i];
  }
  return sum;
}

std::vector<Real> Enumeration::indicator(std::span<const Label> sequence) const {
  std::vector<Real> weight;
  for (const Path& path : paths_) weight.push_back(std::ranges::equal(path.labels, sequence) ? 1 : 0);
  return weight;
}

Real Enumeration::nll(std::span<const Label> gold) const { return log_z_ - score_of(scores_, gold); }

Counts Enumeration::nll_gradient(std::span<const Label> gold) const { return marginals() - counts(indicator(gold)); }

Real Enumeration::entropy() const {
  Real entropy = 0;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (probability_[i] > 0) entropy -= probability_[i] * (paths_[i].score - log_z_);
  }
  return entropy;
}

Counts Enumeration::entropy_gradient() const {
  const Real h = entropy();
  std::vector<Real> weight(paths_.size(), 0);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (probability_[i] > 0) weight[i] = -probability_[i] * (paths_[i].score - log_z_ + h);
  }
  return counts(weight);
}

Real Enumeration::slope(const Scores& direction) const {
  Real slope = 0;
  for (std::size_t i = 0; i < paths_.size(); ++i) slope += probability_[i] * score_of(direction, paths_[i].labels);
  return slope;
}

Counts Enumeration::curvature(const Scores& direction) const {
  const Real mean = slope(direction);
  std::vector<Real> weight(paths_.size());
  for (std::size_t i = 0; i < paths_.size(); ++i)
    weight[i] = probability_[i] * (score_of(direction, paths_[i].labels) - mean);
  return counts(weight);
}

std::vector<Real> Enumeration::consistent(std::span<const std::uint8_t> allowed) const {
  std::vector<Real> scores;
  for (const Path& path : paths_) {
    bool is_allowed = true;
    for (std::size_t t = 0; t < path.labels.size(); ++t) {
      is_allowed = is_allowed && allowed[t * static_cast<std::size_t>(scores_.labels) + path.labels[t]];
    }
    scores.push_back(is_allowed ? path.score : impossible);
  }
  return scores;
}

Real Enumeration::partial_nll(std::span<const std::uint8_t> allowed) const {
  return log_z_ - log_sum_exp(consistent(allowed));
}

Counts Enumeration::partial_nll_gradient(std::span<const std::uint8_t> allowed) const {
  return marginals() - counts(normalized(consistent(allowed)));
}

Enumeration Enumeration::unconstrained() const { return {everything(scores_.labels), scores_}; }

Real Enumeration::language_mass() const { return log_z_ == impossible ? impossible : log_z_ - unconstrained().log_z(); }

Counts Enumeration::language_mass_gradient() const { return marginals() - unconstrained().marginals(); }

Real Enumeration::posterior_score(std::span<const Label> sequence) const {
  const Counts marginal = marginals();
  Real sum = 0;
  for (std::size_t t = 0; t < sequence.size(); ++t) {
    sum += marginal.labels[t * static_cast<std::size_t>(scores_.labels) + sequence[t]];
  }
  return sum;
}

Real Enumeration::best_posterior_score() const {
  const Counts marginal = marginals();
  Real best = impossible;
  for (const Path& path : paths_) {
    if (path.score == impossible) continue;
    Real sum = 0;
    for (std::size_t t = 0; t < path.labels.size(); ++t) {
      sum += marginal.labels[t * static_cast<std::size_t>(scores_.labels) + path.labels[t]];
    }
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace regccrf::oracle
