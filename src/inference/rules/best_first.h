// Best-first search (A*) for the best sequences that obey all rules, where the product of the rules is too large. It
// walks over (position, node, states of all rules), in the order of the score so far plus the best score that the rest
// could have under a part of the rules alone: an upper bound, so the first legal sequence that comes to the front is
// the best.
#pragma once

#include <vector>

#include "inference/batch.h"
#include "inference/cpu/viterbi.h"

namespace regccrf {

// The k best of one position or more, best first. `part`: the base, or the base times some of the rules; its sequences
// include all legal ones. Error of kind `limit` past options.rules.cells.
template <class Real>
std::vector<std::vector<Label>> best_first(const Constraint& part, const Constraint& whole, const MaxModel& model,
                                           const Batch<Real>& batch, const Sequence<Real>& sequence, int k);

}  // namespace regccrf
