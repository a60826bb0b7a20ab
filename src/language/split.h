// A conjunction → what is multiplied out (the base) and what is kept beside it (the rules).
//
// Each operand of `… & … & …` is a small automaton, and most have a memory: at_most(1, A) must know whether there was
// an A. A product remembers all of it at once, so its size doubles with each such operand. An operand that does not
// make the product larger (valid BIO, say) goes into the base; the others are rules. Rules that remember the same thing
// are joined: at_most(1, A), before(A, B) and requires(C, A) all ask whether there was an A.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "constraint/rule.h"
#include "language/expand.h"
#include "language/expr.h"
#include "regccrf/constraint.h"

namespace regccrf {

struct Split {
  ExprPtr base;
  std::vector<Rule> rules;
};

// `expr` is an intersection. `conjuncts` say how its operands are written, where that is known.
Split split(const Expr& expr, const std::vector<Conjunct>& conjuncts, const Labels& labels, const Budget& budget);

// `multiply` (constraint/product.h), and nothing too where it would take more memory than the budget has.
std::optional<Automaton> multiply_within(const Automaton& base, const RuleTables& tables, std::span<const int> which,
                                         std::int64_t most_products, const Budget& budget);

// Where no sequence obeys the base and all the rules: the texts of rules that clash, as few as are needed. Empty where
// there is one, or where that cannot be told within `most_products` (multiply in constraint/product.h).
std::vector<std::string> clashing_rules(const Constraint& constraint, std::int64_t most_products, const Budget& budget);

}  // namespace regccrf
