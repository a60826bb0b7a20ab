// Why a conjunction is empty.
#pragma once

#include <string>
#include <vector>

#include "base/budget.h"
#include "language/expand.h"

namespace regccrf {

// Names operands that no sequence obeys all at once, as few as are found in a short time; "" where none are found.
std::string describe_clash(const std::vector<Conjunct>& conjuncts, const Budget& budget);

}  // namespace regccrf
