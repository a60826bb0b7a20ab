// −log P(gold | x, L) of some sequences with gradients, where gold may be known in part: nll for the sequences whose
// gold is known throughout, partial_nll for the others.
#pragma once

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
  std::vector<std::uint8_t> allowed;        // [rows, K], or empty where all gold is known

  std::int64_t rows() const { return static_cast<std::int64_t>(gold.size()); }
};

bool gold_is_known(const Dataset& data, std::int64_t sequence);

void allow_gold(int K, GoldSequences& sequences);  // fills `allowed`

// Their weighted sum. h, dh: [rows, K]; g, dg: [K, K]. dh and dg are overwritten.
double gold_loss(const Constraint& constraint, const GoldSequences& sequences, std::span<const double> h,
                 std::span<const double> g, std::span<double> dh, std::span<double> dg, int threads,
                 Workspace& workspace);

}  // namespace regccrf
