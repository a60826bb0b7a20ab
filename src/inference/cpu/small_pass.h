// The small pass: forward–backward where nodes are few (plan.h). A step is then a handful of vector instructions, less
// than what surrounds a step of the general pass (forward_backward.h). Here a sequence is one call, a step's numbers
// are one row in registers, and scales are adjusted every few steps. Always in double, which costs little where rows
// are short.
//
// It is trusted on the same ground (inference/numerics/bounds.h).
#pragma once

#include "inference/batch.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/forward_backward.h"

namespace regccrf {

// Whether it serves an automaton.
inline bool has_small_pass(const Topology& topology) { return topology.nodes > 0 && topology.nodes <= kFewNodes; }

// Not trusted, too, where the sequence would need more than `keep_bytes`. Counts that are not wanted cost nothing.
template <class Real>
FastResult small_counts(const Gains<double>& gains, const Sequence<Real>& sequence, Arena& arena,
                        const Counts<Real>& counts, std::size_t keep_bytes);

}  // namespace regccrf
