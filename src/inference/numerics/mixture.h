// What paths have on the average, in wide weights; the same on every device.
//
// A quantity of paths is averaged step by step: of a choice with the probabilities p_i, between branches that have the
// means m_i, the mean is Σ p_i · of(p_i, m_i). Its covariance with counts is the gradient of the whole's mean, for the
// quantities below.
#pragma once

#include <cmath>

#include "inference/numerics/wide.h"

namespace regccrf {

// The weight of some paths, and the mean of a quantity of them.
struct Averaged {
  Wide weight;
  double mean;
};

// −log of a path's probability among those that are looked at. The mean is their entropy.
struct Surprise {
  REGCCRF_BOTH static double of(double p, double mean) { return mean - (p < 1 ? std::log(p) : 0.0); }
};

// What a path's score gains along a direction. The mean is what log_z gains.
struct Gain {
  REGCCRF_BOTH static double of(double, double mean) { return mean; }
};

// The mean over terms that are added one by one; `total`: the sum of their weights.
template <class Quantity>
class Mixture {
 public:
  REGCCRF_BOTH explicit Mixture(Wide total) : total_(total) {}
  REGCCRF_BOTH void add(Wide weight, double mean) {
    if (weight.m == 0) return;
    const double p = ratio(weight, total_);
    if (p > 0) sum_ += p * Quantity::of(p, mean);
  }
  REGCCRF_BOTH double value() const { return sum_; }

 private:
  Wide total_;
  double sum_ = 0;
};

// What something of this weight adds to the covariance with its count; `around`: the mean of what comes before it, of
// itself and of what comes after.
template <class Quantity>
REGCCRF_BOTH double covariance_share(Wide weight, double around, const Averaged& whole) {
  const double p = ratio(weight, whole.weight);
  return p > 0 ? p * (Quantity::of(p, around) - whole.mean) : 0;
}

}  // namespace regccrf
