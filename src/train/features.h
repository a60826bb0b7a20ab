// Features: which weights a model has, and where they stand in the one vector that an optimiser sees.
//
//   w = [ weights of (attribute, label), attribute by attribute | weights of (label, label)
//       | weights of (attribute, label, label), attribute by attribute ]
//
// Where there are any of the last kind, inference runs over marked labels (constraint/pairs.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/dataset.h"
#include "regccrf/trainer.h"
#include "train/stopped.h"

namespace regccrf {

// For which labels each attribute has a weight.
struct Columns {
  int K = 0;
  std::vector<std::int64_t> begin{0};  // [attributes + 1] into label
  std::vector<Label> label;            // an attribute's run ascends

  std::int32_t attributes() const { return static_cast<std::int32_t>(begin.size()) - 1; }
};

struct Features : Columns {
  std::vector<std::int32_t> bigram;  // from · K + to, ascending
  Columns pairs;                     // for which marked labels; its K is how many of these there are

  std::int64_t size() const { return first_pair() + static_cast<std::int64_t>(pairs.label.size()); }
  std::int64_t first_pair() const { return static_cast<std::int64_t>(label.size() + bigram.size()); }
  bool has_pairs() const { return !pairs.label.empty(); }
  // Of what inference sees, marks included.
  int width() const { return has_pairs() ? pairs.K : K; }
};

// Those seen in gold, or all, as the options say; attributes rarer than min_count have none, and what gold asks for
// less than min_frequency is left out.
Features make_features(const Dataset& data, std::int32_t attributes, int K, const TrainOptions& options,
                       std::span<const Weighs> weighs = {});

// What inference runs under: the constraint, over marked labels where attributes weigh pairs.
Constraint inference_constraint(const Features& features, const Constraint& constraint);

// Weights of a model for the same names, in the place of what is in `w`. Gives how many there were.
std::int64_t take_over(const Model& model, const Training& training, const Features& features, std::span<double> w);

// [K, K] transitions of a weight vector; 0 where there is no weight.
std::vector<double> transitions_of(const Features& features, std::span<const double> w);

// h[t, a] of the positions first … last - 1, whose attributes may be ones without weights; over marked labels, with
// the transitions in them, where there are pairs. `out`: [last - first, width]
void emissions_of(const Features& features, std::span<const double> w, const Dataset& data, std::int64_t first,
                  std::int64_t last, std::span<double> out);

// The best labels of every position under an inference_constraint. [positions]. Throws Stopped as soon as `stop` says
// so.
std::vector<Label> decode(const Features& features, std::span<const double> w, const Dataset& data,
                          const Constraint& constraint, int threads, const Stop& stop = {});

}  // namespace regccrf
