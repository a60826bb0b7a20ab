// TrainState: where training stands between two iterations. What the optimiser needs to go on and what the monitor
// judges by; a checkpoint (checkpoint.cc) is this, saved.
#pragma once

#include <vector>

#include "regccrf/trainer.h"

namespace regccrf {

struct TrainState {
  int iteration = 0;  // done
  Phase phase = Phase::whole;
  double max_gap = 0;              // under rules; it tightens where the objective is not certain enough to go on
  double seconds = 0;              // spent before this process began
  std::vector<double> w;           // [features]
  std::vector<double> objectives;  // the last of them, at most period + 1
  std::vector<double> best_w;      // [features], or empty: w is the best
  Progress best, last;
  int since_rise = 0;  // iterations since the development score rose
  // adagrad
  std::vector<double> squares;  // [features] sums of squared gradients
  std::vector<double> drift;    // [features] what turns w into the mean weights: see adagrad.cc
  double steps = 0;             // that the mean is over
};

}  // namespace regccrf
