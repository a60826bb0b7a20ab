// Expression → the cheapest unambiguous automaton that the known constructions find.
#pragma once

#include <string>

#include "base/budget.h"
#include "language/expr.h"

namespace regccrf {

struct Unambiguous {
  Automaton automaton;
  std::string method;
};

struct EmptyLanguage {};

// Throws EmptyLanguage where there is no sequence, LimitError when no construction stays within the budget.
Unambiguous cheapest_unambiguous(const Expr& expr, const Budget& budget);

}  // namespace regccrf
