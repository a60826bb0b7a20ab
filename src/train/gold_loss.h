// −log P(gold | x, L) of some sequences with gradients, where gold may be known in part: nll for the sequences whose
// gold is known throughout, partial_nll for the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "regccrf/inference.h"

namespace regccrf {

// Sequences one after another, those whose gold is known throughout first.
struct GoldSequences {
  std::vector<std::int64_t> first, length;  // [sequences] rows
  std::size_t known = 0;                    // how many are known throughout
  std::vector<double> weight;               // [sequences] how often each counts, or empty: once
  std::vector<Label> gold;                  // [rows]
  std::vector<std::uint8_t> allowed;        // [rows, width], or empty where all gold is known

  std::int64_t rows() const { return static_cast<std::int64_t>(gold.size()); }
};

bool gold_is_known(const Dataset& data, std::int64_t sequence);

// From gold as it came: fills `allowed`, and makes gold marked labels (constraint/pairs.h) where `width`, of what
// inference sees, is more than K.
void number_gold(int K, int width, GoldSequences& sequences);

// How certain losses under rules are that a constraint keeps beside its base.
struct Certainty {
  double largest_gap = 0;
  double slack = 0;              // Σ weight · log(1 + gap): by how much the sum of losses may be off
  std::int64_t uncertified = 0;  // sequences whose gap is larger than it should be …
  std::int64_t bounds = 0;       // … and how many of these have the base's loss: not in `slack`

  void add(const Certainty& other) {
    largest_gap = std::max(largest_gap, other.largest_gap);
    slack += other.slack;
    uncertified += other.uncertified;
    bounds += other.bounds;
  }
};

// What losses under such rules need, and leave. A sequence that needed a larger gap once keeps it as long as `allowed`
// does, so that an optimiser sees one function, and work that is in vain is done once.
struct RuleLosses {
  double max_gap = 1e-3;
  std::int64_t cells_a_position = 0;  // what a sequence may cost before it gets a larger gap
  std::vector<double> allowed = {};   // [sequences] the gap of each, inf: the base's loss; or empty: max_gap
  Certainty certainty = {};
};

// The most cells for each position of a training set: little data can afford more. With a hundred, a sequence takes a
// few times as long as under the base.
std::int64_t affordable_cells(std::int64_t positions);

// Their weighted sum. h, dh: [rows, K]; g, dg: [K, K], or empty for none. dh and dg are overwritten. `rules`: where the
// constraint keeps some; its certainty is overwritten.
double gold_loss(const Constraint& constraint, const GoldSequences& sequences, std::span<const double> h,
                 std::span<const double> g, std::span<double> dh, std::span<double> dg, int threads,
                 Workspace& workspace, RuleLosses* rules = nullptr);

}  // namespace regccrf
