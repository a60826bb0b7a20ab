// Losses with gradients in closed form: expected counts minus observed ones, from one forward–backward pass.
//
//   Constraint bio = compile(Language::parse("(O | B-PER I-PER*)*"));      // K = 3 labels: O, B-PER, I-PER
//   std::vector<float> h(4 * 3), g(3 * 3);                                 // [T, K], [K, K]: a model's scores
//   Scores scores(h, g);
//   std::vector<Label> correct = {1, 2, 0, 0};                             // [T]: B-PER I-PER O O
//   std::vector<float> dh(4 * 3), dg(3 * 3);                               // for the gradients
//   Loss loss = nll(bio, scores, correct, {.emissions = dh, .transitions = dg});
//   double value = loss.values[0];                                         // −log P(correct | x, L)
//
// log_z with its gradients, and its second derivative in a direction, are here, too. Threads and accuracy as in
// inference.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/inference.h"
#include "regccrf/scores.h"

namespace regccrf {

// Where to put the gradients of Σ_i weights[i] · value_i. Empty ones are not computed. The others are overwritten:
// emission rows of masked positions and of skipped sequences become zero. Rows that belong to no sequence are not
// changed.
template <class Real>
struct Gradients {
  std::span<Real> emissions = {};      // [rows, K] in the layout of the emissions
  std::span<Real> transitions = {};    // [K, K]
  std::span<Real> start = {};          // [K]
  std::span<Real> end = {};            // [K]
  std::span<const Real> weights = {};  // [B]; empty: all 1

  bool wanted() const { return !emissions.empty() || !transitions.empty() || !start.empty() || !end.empty(); }
};

// What to do with a sequence whose correct labels (gold) are not in L, have a score of −inf, or cannot be completed.
enum class OutsideGold { error, skip };

struct LossOptions : Options {
  OutsideGold outside = OutsideGold::error;
};

struct Loss {
  explicit Loss(std::int64_t size = 0)
      : values(static_cast<std::size_t>(size)), skipped(static_cast<std::size_t>(size)) {}

  std::vector<double> values;         // [B]; 0 for skipped sequences
  std::vector<std::uint8_t> skipped;  // [B]; 1 for a sequence that OutsideGold::skip left out
  std::int64_t skipped_count() const { return std::count(skipped.begin(), skipped.end(), 1); }
  double total() const {
    double sum = 0;
    for (double value : values) sum += value;
    return sum;
  }
};

// How the losses of a batch become one number: their sum over a divisor, which is 1 for `sum`, the number of sequences
// for `mean`, and that of their present positions for `token_mean`. Skipped sequences do not count, neither in the
// sum nor in the divisor. The divisor is at least 1, so if all sequences are skipped the loss is 0. An infinite loss
// counts like any other.
enum class Reduction : std::int32_t { none, sum, mean, token_mean };

// What a sequence adds to the divisor …
constexpr std::int64_t divisor_part(Reduction reduction, bool skipped, std::int64_t length) {
  if (skipped) return 0;
  return reduction == Reduction::mean ? 1 : reduction == Reduction::token_mean ? length : 0;
}
// … the divisor from their sum …
constexpr double divisor_of(double parts) { return parts > 1 ? parts : 1; }
// … and that of a batch. `skipped`: [B], or empty for none; `lengths`: [B], of present positions.
inline double divisor(Reduction reduction, std::span<const std::uint8_t> skipped,
                      std::span<const std::int64_t> lengths) {
  std::int64_t parts = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    parts += divisor_part(reduction, !skipped.empty() && skipped[i], lengths[i]);
  return divisor_of(static_cast<double>(parts));
}

// −log P(gold | x, L). `gold`: the correct labels, [rows]; entries of masked positions may be anything. If they are not
// in L, there is an Error that names the first position at which they leave L and the labels that were possible there.
// This includes impossible sequences (inference.h).
template <class Real>
Loss nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const Label> gold,
         const Gradients<Real>& gradients = {}, const LossOptions& options = {});

// −log P(some y in L with allowed[t, y_t] at every t | x, L). `allowed`: [rows, K], 0 or not.
template <class Real>
Loss partial_nll(const Constraints& constraints, const Scores<Real>& scores, std::span<const std::uint8_t> allowed,
                 const Gradients<Real>& gradients = {}, const LossOptions& options = {});

// Entropy and log P(L | x), as in inference.h, with their gradients. With Impossible::allow an impossible sequence has
// the value 0 (entropy) or −inf (mass), and no gradient.
template <class Real>
Loss entropy(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
             const Options& options = {});
template <class Real>
Loss language_mass(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
                   const Options& options = {});

// --- derivatives of log_z --------------------------------------------------------------------------------------------

// log Σ_{y in L} exp score(y) with its gradients, expected counts. With Impossible::allow an impossible sequence has
// the value −inf and no gradient.
template <class Real>
Loss log_z(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
           const Options& options = {});

// A direction in the space of scores. Empty parts are 0.
template <class Real>
struct Direction {
  std::span<const Real> emissions = {};    // [rows, K] in the layout of the emissions
  std::span<const Real> transitions = {};  // [K, K]
  std::span<const Real> start = {};        // [K]
  std::span<const Real> end = {};          // [K]
};

// The second derivative in a direction v, for differentiating gradients again. ∇²log_z · v is the covariance of the
// counts with v · counts. It is computed exactly by one forward–backward pass, without a matrix: every number has the
// mean of v · counts over its paths beside it.
//
// How log_z changes along `direction` (values, [B]), and how the gradients of Σ_i weights[i] · log_z_i change along it
// (gradients). Right for scores of any size. Impossible sequences as above, with the value 0.
template <class Real>
Loss curvature(const Constraints& constraints, const Scores<Real>& scores, const Direction<Real>& direction,
               const Gradients<Real>& gradients, const Options& options = {});

}  // namespace regccrf
