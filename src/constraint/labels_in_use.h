// Which labels a constraint's sequences have. A label that is named in a pattern and that no sequence has is most
// likely misspelt: in bio({PER}) & at_most(1, B-PRE) the second part forbids nothing.
#pragma once

#include <vector>

#include "regccrf/constraint.h"

namespace regccrf {

// [K] Whether a sequence has the label; where rules are kept, one of the base.
std::vector<bool> labels_in_use(const Constraint& constraint);

}  // namespace regccrf
