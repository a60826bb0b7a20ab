// Derivatives of log_z: the first with its gradients, the second in a direction. What automatic differentiation of a
// model needs to differentiate log_z, and its gradients once more.
//
// ∇²log_z · v is the covariance of the counts with v · counts. It comes from one forward–backward pass in which every
// number carries the mean of v · counts over its paths; nothing is approximated, and no matrix is built.
#pragma once

#include <span>

#include "regccrf/loss.h"

namespace regccrf {

// log Σ_{y in L} exp score(y) with its gradients, expected counts. With Impossible::allow an impossible sequence has
// the value −inf and no gradient.
template <class Real>
Loss log_z(const Constraints& constraints, const Scores<Real>& scores, const Gradients<Real>& gradients,
           const Options& options = {});

// A direction in the space of scores. What is empty does not move.
template <class Real>
struct Direction {
  std::span<const Real> emissions = {};    // [rows, K] in the layout of the emissions
  std::span<const Real> transitions = {};  // [K, K]
  std::span<const Real> start = {};        // [K]
  std::span<const Real> end = {};          // [K]
};

// How log_z changes along `direction` (values, [B]), and how the gradients of Σ_i weights[i] · log_z_i change along it
// (gradients). Right for scores of any size. Impossible sequences as above, with the value 0.
template <class Real>
Loss curvature(const Constraints& constraints, const Scores<Real>& scores, const Direction<Real>& direction,
               const Gradients<Real>& gradients, const Options& options = {});

}  // namespace regccrf
