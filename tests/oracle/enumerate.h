// Enumeration: every sequence of length T that an automaton accepts, each with its score, and from this list alone
// everything that inference computes. Exponential in T, and obviously right.
//
// A quantity and its gradient are sums over the list: Σ_y w(y)·counts(y), with w = P for marginals, with
// w = -P·(log P + H) for the gradient of the entropy, with w = P·(v(y) − E v) along a direction v, with w = P given the
// allowed labels for partial gold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/automaton.h"
#include "tests/oracle/scores.h"

namespace regccrf::oracle {

struct Path {
  std::vector<Label> labels;  // [T]
  std::vector<State> states;  // [T+1]
  Real score;
};

// Weighted counts of what sequences contain; with w = P, their marginals.
struct Counts {
  std::vector<Real> labels;   // [T, K]
  std::vector<Real> pairs;    // [T-1, K, K] labels at t and t+1
  std::vector<Real> bigrams;  // [K, K] pairs, summed over t
  std::vector<Real> states;   // [T+1, Q] the state before position t; at T, the last
  std::vector<Real> start;    // [K]
  std::vector<Real> end;      // [K]
};

Counts operator-(const Counts& x, const Counts& y);

class Enumeration {
 public:
  // Throws std::logic_error when a sequence has two paths.
  Enumeration(const Automaton& automaton, const Scores& scores);

  const std::vector<Path>& paths() const { return paths_; }  // in the order of their labels
  Real log_z() const { return log_z_; }
  Real best() const;                              // -inf where nothing is possible
  std::vector<Path> k_best(std::size_t k) const;  // best first, ties by labels; never a path of score -inf
  const std::vector<Real>& probabilities() const { return probability_; }  // of each path
  std::vector<Real> probabilities(Real temperature) const;                 // ∝ exp(score / temperature)

  Counts marginals() const { return counts(probability_); }
  Real nll(std::span<const Label> gold) const;
  Counts nll_gradient(std::span<const Label> gold) const;

  Real entropy() const;
  Counts entropy_gradient() const;

  // How log_z changes along a direction, shaped as the scores, and how its gradient, the marginals, does.
  Real slope(const Scores& direction) const;
  Counts curvature(const Scores& direction) const;

  // allowed [T, K], not 0 where the label is consistent with the gold.
  Real partial_nll(std::span<const std::uint8_t> allowed) const;
  Counts partial_nll_gradient(std::span<const std::uint8_t> allowed) const;

  // log P(L|x): how much of the unconstrained model's mass is legal; -inf where nothing is possible.
  Real language_mass() const;
  Counts language_mass_gradient() const;

  // The sum of label marginals along a sequence, and the largest over the language.
  Real posterior_score(std::span<const Label> sequence) const;
  Real best_posterior_score() const;

  Counts counts(std::span<const Real> weight) const;  // Σ_y weight(y)·counts(y)

 private:
  void extend(Path& path);
  std::vector<Real> consistent(std::span<const std::uint8_t> allowed) const;
  std::vector<Real> indicator(std::span<const Label> sequence) const;
  Enumeration unconstrained() const;

  Automaton automaton_;
  Scores scores_;
  std::vector<std::vector<bool>> finishes_;  // [T+1][Q] an accepting state is so many arcs away
  std::vector<Path> paths_;
  std::vector<Real> probability_;
  Real log_z_;
};

Real log_sum_exp(std::span<const Real> values);  // -inf for none

}  // namespace regccrf::oracle
