// The one-state pass: forward–backward where every sequence is legal and labels are few, an ordinary CRF. A step is
// then a handful of vector instructions, less than what surrounds a step of the general pass (forward_backward.h).
// Here a sequence is one call, a step's numbers are one row in registers, and scales are adjusted every few steps.
// Double only.
//
// It is trusted on the same ground (inference/numerics/bounds.h).
#pragma once

#include <cstdint>

#include "inference/batch.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/forward_backward.h"

namespace regccrf {

constexpr int kOneStateLabels = 32;  // the most that it serves

// Whether it serves an automaton: one accepting state with an arc for each of few labels.
bool is_one_state(const Topology& topology);

// exp of a call's transition, start and end scores, each relative to the largest of its kind, in rows of `stride`
// numbers.
struct OneState {
  explicit OneState(const Scores<double>& scores);

  int K, stride;  // stride: K, padded to a multiple of 8 by zeros
  double g_peak, start_peak, end_peak;
  double floor;  // of alpha
  Arena memory;
  double *matrix, *transposed;  // [stride, stride], as alpha takes them and as beta does
  double *start, *end;          // [stride], as alpha takes them
};

// Not trusted, too, where the sequence would need more than `keep_bytes`.
FastResult one_state_counts(const OneState& gains, const Sequence<double>& sequence, Arena& arena,
                            const Counts<double>& counts, std::size_t keep_bytes);

}  // namespace regccrf
