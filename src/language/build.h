// Expression → automaton (not yet unambiguous).
#pragma once

#include "base/budget.h"
#include "language/expr.h"

namespace regccrf {

// Trimmed; a regular expression gives its position (Glushkov) automaton, with one state per label set plus the start.
Automaton build(const Expr& expr, const Budget& budget);

}  // namespace regccrf
