// Forward, and forward–backward, in wide arithmetic: the passes that are right for any scores.
#pragma once

#include <cstdint>
#include <functional>

#include "inference/batch.h"
#include "inference/cpu/wide_steps.h"

namespace regccrf {

// Z, in O(nodes) memory. Zero where no sequence of this length is legal.
template <class Real>
Wide wide_total(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena);

// visit(t, nodes) for t = T-1 … 0: nodes [N] has P(position t is emitted from node n). E [K, K], unless null, gets the
// expected bigrams of all positions added to it; those of (t, t+1) are in it when t is visited. Returns Z; where it is
// zero nothing is visited or added.
using WideVisit = std::function<void(std::int64_t t, const double* nodes)>;
template <class Real>
Wide wide_marginals(const Topology& topology, const WideModel& model, const Sequence<Real>& sequence, Arena& arena,
                    std::size_t keep_bytes, double* E, const WideVisit& visit);

}  // namespace regccrf
