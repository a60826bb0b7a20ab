// L-BFGS and OWL-QN by libLBFGS; the one room that includes it.
#pragma once

#include <functional>
#include <span>

#include "regccrf/trainer.h"

namespace regccrf {

struct LbfgsIteration {
  int iteration;  // 1, 2, …
  double objective, gradient_norm;
  std::span<const double> w;
};

enum class LbfgsEnd { converged, iterations, asked, stuck };  // stuck: no step improves, to rounding

// Value at w, and the gradient.
using Evaluate = std::function<double(std::span<const double> w, std::span<double> gradient)>;
// After every iteration; false stops.
using OnIteration = std::function<bool(const LbfgsIteration&)>;

// Minimises evaluate(w) + l1 · ‖w‖₁ from w, and leaves the result in w. iterations = 0: as many as it takes.
// Of the options it reads l1 and those marked lbfgs. What `evaluate` and `on_iteration` throw is thrown.
LbfgsEnd minimize_lbfgs(std::span<double> w, const TrainOptions& options, int iterations, const Evaluate& evaluate,
                        const OnIteration& on_iteration);

}  // namespace regccrf
