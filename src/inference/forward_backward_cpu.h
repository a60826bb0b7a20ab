// The fast forward–backward pass: probabilities in float or double with one scale for each step, over a plan's cells.
//
// exp(h) and exp(g) are taken relative to their largest, and each step is scaled by a power of two, so numbers can only
// be lost at the lower end. Two ways to know that nothing lost matters:
//   forward alone   no number ever came so low that a product could have vanished; then nothing was lost.
//   both ways       beta is scaled so that alpha · beta sums to 1 at every step. What vanished from alpha was smaller
//                   than the smallest normal number, so its share of the total was below that number times beta. As
//                   long as no beta (and no h ⊗ beta) is larger than a bound, the share is negligible. A beta may have
//                   vanished too, and then grown unseen; but a step back can multiply it by a known number at most,
//                   and if all of those together cannot bring it above the bound, it stayed below.
// If neither holds the pass says so, and the caller takes one with more range. Rounding errors grow with T where the
// language remembers (a* | b*), which is why float serves short sequences only.
#pragma once

#include <cstdint>
#include <memory>

#include "inference/batch.h"
#include "inference/expectation.h"
#include "inference/plan.h"

namespace regccrf {

constexpr std::int64_t kFloatSteps = 256;  // the longest sequence that float serves

// exp of a call's transition, start and end scores, laid out for one plan.
template <class P>
struct Gains {
  template <class Real>
  Gains(const Topology& topology, const Scores<Real>& scores);

  const Topology& topology;
  double g_peak, start_peak, end_peak;  // what the weights are relative to
  double lowest;                        // of the finite scores, relative to its peak
  Arena memory;
  P* matrix;      // the groups' [in, out]
  P* transposed;  // the groups' [out, in]
  P* exists;      // [node cells] 1, or 0 for padding
  P* start;       // [K]
  P* last;        // [node cells] exp(end) where the node accepts, else 0
};

struct FastResult {
  bool trusted;  // else nothing is known, and `counts` hold nothing of use
  double log_z;
};

template <class Real, class P>
FastResult fast_log_z(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena);

template <class Real, class P>
FastResult fast_counts(const Gains<P>& gains, const Sequence<Real>& sequence, Arena& arena, const Counts<Real>& counts,
                       std::size_t keep_bytes, bool& checkpointed);

}  // namespace regccrf
