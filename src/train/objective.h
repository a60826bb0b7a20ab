// Objective: Σ_i −log P(gold_i | x_i, L) of a data set, and its gradient, by all threads.
//
// Two phases alternate over rounds of blocks. First each thread takes whole blocks: emissions from the weights, then
// the loss and its gradient for the emissions by forward–backward. Then each thread takes a range of attributes, and
// adds up their gradients over the round's blocks in order. So nobody writes where another one does, there is one
// gradient however many threads there are, and every number is summed in the same order: the result does not depend on
// the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "train/features.h"
#include "train/gold_loss.h"
#include "train/stopped.h"

namespace regccrf {

// How many blocks are worked out between two sums; each has K² numbers of its own until then.
std::size_t blocks_of_a_round(std::size_t blocks, int K, int threads);

class Objective {
 public:
  // Of sequences first … last - 1, under an inference_constraint. Keeps references to `features`; the data is no longer
  // needed after this.
  Objective(const Dataset& data, const Features& features, const Constraint& constraint, std::int64_t first,
            std::int64_t last, int threads, Stop stop = {});
  ~Objective();

  // From here on under this constraint, over the same labels; `max_gap` counts where it keeps rules. Sequences that had
  // the bound's loss are tried anew.
  void under(const Constraint& constraint, double max_gap);
  // Of the last value, where rules are kept.
  const Certainty& certainty() const;

  // The value; `gradient` is overwritten. [features.size()] both. Throws Stopped as soon as `stop` says so.
  double operator()(std::span<const double> w, std::span<double> gradient);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace regccrf
