// The base of a constraint times some of its rules: both are walked at once, and a state is made when it is reached. A
// product of an unambiguous automaton and deterministic ones is unambiguous.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/budget.h"
#include "constraint/rule.h"
#include "regccrf/automaton.h"

namespace regccrf {

// Trimmed; one state and no arcs where no sequence obeys them all. Nothing where a step would take more than
// `most_products` products, counted before trimming: the walk stops there. LimitError at the budget's end.
std::optional<Automaton> multiply(const Automaton& base, const RuleTables& rules, std::span<const int> which,
                                  std::int64_t most_products, const Budget& budget = {});

}  // namespace regccrf
