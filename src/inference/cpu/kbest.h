// The k best sequences of one constraint and one sequence, as decoding with and without rules shares it.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "inference/cpu/viterbi.h"

namespace regccrf {

// What becomes of a sequence that was found: kept, passed over, or passed over with all that would come after it.
enum class Want { kept, not_kept, enough };
using Wanted = std::function<Want(std::span<const Label>)>;

// The k best sequences, best first, of those that are wanted.
template <class Real>
std::vector<Path> best_paths(const Constraint& constraint, BestPaths<Real>& best, const Scores<Real>& scores,
                             const Sequence<Real>& sequence, int k, Arena& arena, const Wanted& wanted);

}  // namespace regccrf
