// Chain: what a base says about one sequence, as a Markov chain over nodes. A sequence of labels that the base accepts
// is one path through it, and the path's probability is that of the sequence under the base alone, the rules aside. All
// numbers are probabilities, so nothing here can overflow, and a number that vanishes is one that does not matter.
//
// Most nodes of a position have next to no probability, since one sequence's scores rule them out. The smallest are
// left out, up to a given sum; the others are live. `lost` is the probability of all sequences that are gone with them,
// and what the arithmetic may have lost.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "inference/batch.h"
#include "inference/cpu/forward_backward.h"
#include "inference/cpu/wide_steps.h"

namespace regccrf {

struct Chain {
  struct Layer {
    std::int32_t first, count;
  };
  // Live nodes of all positions in one list, those of the last position first; within a position sorted by node.
  std::vector<Layer> layers;            // [T] which of them are a position's
  std::vector<std::int32_t> node;       // [live]
  std::vector<Label> label;             // [live]
  std::vector<double> mass;             // [live] P(the position is emitted from this node)
  std::vector<std::int32_t> arc_begin;  // [live + 1] arcs to the next position …
  std::vector<std::int32_t> arc_to;     // … where to, counted within the next position's layer
  std::vector<double> arc_probability;  // … and with which probability
  double lost = 0;
  bool too_large = false;  // more arcs than are allowed, and not a whole chain
  double log_z = 0;        // of the base

  std::int64_t T() const { return static_cast<std::int64_t>(layers.size()); }
  int most_live() const;
};

// What may be left out of a position, as a probability; and how many arcs a chain may have.
struct ChainLimits {
  double most_lost;
  std::int64_t most_arcs;
};

// Makes chains for the sequences of one call, under one automaton. Safe between threads.
template <class Real>
class ChainMaker {
 public:
  // `base` keeps no rules.
  ChainMaker(const Constraint& base, const Batch<Real>& batch);
  ~ChainMaker();

  const Constraint& base() const { return base_; }
  // False where the base has no sequence of finite score. T ≥ 1.
  bool make(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena, Chain& chain) const;

 private:
  bool make_fast(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena, Chain& chain,
                 bool& trusted) const;
  bool make_wide(const Sequence<Real>& sequence, const ChainLimits& limits, Arena& arena, Chain& chain) const;

  Constraint base_;
  const Batch<Real>& batch_;
  Gains<double> gains_;
  std::vector<double> g_;  // [K, K] exp of transitions, relative to the largest; empty: ones
  mutable std::once_flag wide_once_;
  mutable std::unique_ptr<WideModel> wide_;
};

extern template class ChainMaker<float>;
extern template class ChainMaker<double>;

}  // namespace regccrf
