// The paper's synthetic experiments (section 6): what constrained training learns and constrained decoding cannot.
//
// One input, so emissions are free parameters per position. Two models are trained on samples of a data distribution
// over a language, one with the constraint and one without, by stochastic gradient descent on the negative
// log-likelihood. Constrained decoding is the second model's weights under the constraint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regccrf/constraint.h"

namespace regccrf::experiments {

struct Setting {
  double learning_rate = 0.1;  // the paper prints 1.0; the released script has 0.1
  double decay = 0.9;          // of the learning rate, every `decay_every` steps
  int decay_every = 100;
  int steps = 5'000;
  int batch = 50;          // samples a step
  double deviation = 0.1;  // of the initial transitions; emissions start at zero
};

// A distribution over a few sequences of one length.
struct Data {
  Constraint constraint;
  std::vector<std::vector<Label>> sequences;
  std::vector<double> probabilities;
};

Data figure2_data(int k);  // (a c)* | (b c)*: (ac)^k with 3/4, (bc)^k with 1/4
Data table1_data();        // a c d | b c d | b c e: 0.4, 0.3, 0.3

// log P(sequence | constraint), for each sequence of the data.
struct Outcome {
  std::vector<double> decoding, training;
};

Outcome run(const Data& data, const Setting& setting, std::uint64_t seed);

// −Σ probability · log P
double cross_entropy(const Data& data, const std::vector<double>& log_p);

}  // namespace regccrf::experiments
