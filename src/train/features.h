// Features: which weights a model has, and where they stand in the one vector that an optimiser sees.
//
//   w = [ weights of (attribute, label), attribute by attribute | weights of (label, label) ]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/dataset.h"
#include "regccrf/trainer.h"
#include "train/stopped.h"

namespace regccrf {

struct Features {
  int K = 0;
  std::vector<std::int64_t> begin{0};  // [attributes + 1] into label
  std::vector<Label> label;            // an attribute's run ascends
  std::vector<std::int32_t> bigram;    // from · K + to, ascending

  std::int32_t attributes() const { return static_cast<std::int32_t>(begin.size()) - 1; }
  std::int64_t size() const { return static_cast<std::int64_t>(label.size() + bigram.size()); }
};

// Those seen in gold, or all, as the options say; attributes rarer than min_count have none, and what gold asks for
// less than min_frequency is left out.
Features make_features(const Dataset& data, std::int32_t attributes, int K, const TrainOptions& options);

// Weights of a model for the same names, in the place of what is in `w`. Gives how many there were.
std::int64_t take_over(const Model& model, const Training& training, const Features& features, std::span<double> w);

// [K, K] transitions of a weight vector; 0 where there is no weight.
std::vector<double> transitions_of(const Features& features, std::span<const double> w);

// h[t, a] of the positions first … last - 1, whose attributes may be ones without weights. `out`: [last - first, K]
void emissions_of(const Features& features, std::span<const double> w, const Dataset& data, std::int64_t first,
                  std::int64_t last, std::span<double> out);

// The best labels of every position under a constraint. [positions]. Throws Stopped as soon as `stop` says so.
std::vector<Label> decode(const Features& features, std::span<const double> w, const Dataset& data,
                          const Constraint& constraint, int threads, const Stop& stop = {});

}  // namespace regccrf
