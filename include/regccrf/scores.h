// Scores: views of what a model says about a ragged batch. Logs, larger is better. A view owns nothing and allocates
// nothing; the memory behind it must outlive the call that it is given to, and is only read.
//
//   score(y) = start[y_0] + Σ_t emissions[t, y_t] + Σ_t transitions[y_t, y_{t+1}] + end[y_{T-1}]
//
// −inf forbids and is legal everywhere. NaN and +inf are errors that name the sequence, the position and the label.
// Finite scores beyond ±1e10 count as ±1e10.
#pragma once

#include <cstdint>
#include <span>

#include "regccrf/constraint.h"
#include "regccrf/labels.h"

namespace regccrf {

// Where a batch's positions lie among the rows of its arrays. Position t of sequence i is row first[i] + t · stride:
//   one after another: stride 1, first = running sum of lengths
//   padded, batch first [B, T, K]: stride 1, first[i] = i · T, and lengths or a mask
//   padded, time first [T, B, K]: stride B, first[i] = i
// A position whose row is masked out is as if it were absent: its neighbours become adjacent.
struct Layout {
  std::span<const std::int64_t> first = {};   // [B]; empty: one sequence, which has every row
  std::span<const std::int64_t> length = {};  // [B]; positions of each, the masked ones included
  std::int64_t stride = 1;
  std::span<const std::uint8_t> mask = {};  // [rows] 0 = absent; empty: all present
};

template <class Real>  // float or double
struct Scores {
  int labels = 0;                          // K
  std::span<const Real> emissions = {};    // [rows, K]
  std::span<const Real> transitions = {};  // [K, K] from, to
  std::span<const Real> start = {};        // [K], or empty for none
  std::span<const Real> end = {};          // [K], or empty for none
  Layout layout = {};
};

// One constraint for every sequence, or one of several for each.
class Constraints {
 public:
  Constraints(const Constraint& one) : all_(&one, 1) {}                              // NOLINT: implicit
  Constraints(std::span<const Constraint> all, std::span<const std::int32_t> which)  // which: [B], into all
      : all_(all), which_(which) {}

  std::span<const Constraint> all() const { return all_; }
  std::span<const std::int32_t> which() const { return which_; }  // empty: the first for everyone

 private:
  std::span<const Constraint> all_;
  std::span<const std::int32_t> which_;
};

}  // namespace regccrf
