// The fast forward–backward pass: probabilities in float or double with one scale for each step, over a plan's cells.
// It knows afterwards whether its answer can be trusted:
//   both ways       Z by alpha alone and Z by beta alone agree (inference/numerics/bounds.h);
//   forward alone   no number ever came as low as alpha's floor, so nothing was lost.
// If not, the caller takes a pass with more range. Rounding errors grow with T where the language remembers (a* | b*),
// which is why float serves short sequences only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "inference/batch.h"
#include "inference/cpu/expectation.h"
#include "inference/cpu/plan.h"

namespace regccrf {

// exp of a call's transition, start and end scores, laid out for one plan.
template <class P>
struct Gains {
  template <class Real>
  Gains(const Topology& topology, const Scores<Real>& scores);

  const Topology& topology;
  double g_peak, start_peak, end_peak;  // what the weights are relative to
  double lowest;                        // of the finite scores, relative to its peak
  P floor;                              // of alpha
  Arena memory;
  P* matrix;      // the groups' [in, out], as alpha takes them
  P* transposed;  // the groups' [out, in], as beta does
  P* exists;      // [node cells] 1, or 0 for padding
  P* start;       // [node cells] exp(start), as alpha takes them, at nodes of the start state, else 0
  P* last;        // [node cells] exp(end), likewise, where the node accepts, else 0
};

struct FastResult {
  bool trusted;  // else nothing is known, and `counts` hold nothing of use
  double log_z;
};

// The way forward alone; ends early where it cannot be trusted.
template <class Real, class P>
FastResult fast_log_z(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena);

template <class Real, class P>
FastResult fast_counts(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts,
                       std::size_t keep_bytes, bool& checkpointed);

// visit(t, alpha, beta, after, sum) for t = T-1 … 0, in the plan's cells: alpha · beta / sum is what a node has of the
// whole; beta of t is the matrix times `after` of t + 1. Stops where the pass cannot be trusted.
template <class P>
using FastVisit = std::function<void(std::int64_t t, const P* alpha, const P* beta, const P* after, double sum)>;
template <class Real, class P>
FastResult fast_visit(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, std::size_t keep_bytes,
                      const FastVisit<P>& visit);

}  // namespace regccrf
