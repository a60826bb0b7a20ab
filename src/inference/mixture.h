// Entropy of a choice and of what lies behind each of its branches, in wide weights; the same on every device.
#pragma once

#include <cmath>

#include "inference/wide.h"

namespace regccrf {

// The weight of some paths, and their entropy among themselves.
struct Entropic {
  Wide weight;
  double entropy;
};

// Σ p_i (−log p_i + entropy_i) with p_i = weight_i / Σ weight, over terms that are added one by one.
class Mixture {
 public:
  REGCCRF_BOTH explicit Mixture(Wide total) : total_(total) {}
  REGCCRF_BOTH void add(Wide weight, double entropy) {
    if (weight.m == 0) return;
    const double p = ratio(weight, total_);
    if (p > 0) sum_ += p * (entropy - (p < 1 ? std::log(p) : 0.0));
  }
  REGCCRF_BOTH double value() const { return sum_; }

 private:
  Wide total_;
  double sum_ = 0;
};

// What something of this weight, of a total z of this entropy, adds to the gradient of the entropy; `around`: the
// entropy of what comes before it and of what comes after.
REGCCRF_BOTH inline double gradient_share(Wide weight, double around, Wide z, double entropy) {
  const double p = ratio(weight, z);
  return p > 0 ? p * (around - std::log(p) - entropy) : 0;
}

}  // namespace regccrf
