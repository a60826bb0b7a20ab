// The algebra of automata, by OpenFst. Every function takes and gives epsilon-free automata; results are trimmed (an
// automaton for the empty language has one state and no arcs). Constructions that can explode stop at their budget.
#pragma once

#include <vector>

#include "language/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

Automaton trim(const Automaton& automaton);
// Takes arcs with label -1 as epsilon.
Automaton remove_epsilon(const Automaton& automaton, const Budget& budget);
Automaton reverse(const Automaton& automaton);
Automaton minimal_dfa(const Automaton& automaton, const Budget& budget);
// The reverse of the minimal DFA of the reverse: at most one arc into each state for each label.
Automaton codeterministic(const Automaton& automaton, const Budget& budget);
// Merges states that cannot be told apart looking forward, then looking backward. Keeps unambiguity.
// In reduce.cc.
Automaton reduce(const Automaton& automaton, const Budget& budget);
Automaton intersect(const Automaton& x, const Automaton& y, const Budget& budget);
// Of all at once: no product of only some of them is built, which may be far larger than that of all.
Automaton intersect_all(const std::vector<const Automaton*>& operands, const Budget& budget);
Automaton difference(const Automaton& x, const Automaton& y, const Budget& budget);
Automaton disambiguate(const Automaton& automaton, const Budget& budget);
bool equivalent(const Automaton& x, const Automaton& y, const Budget& budget);

inline bool accepts_nothing(const Automaton& trimmed) {
  return trimmed.arcs.empty() && !trimmed.accepting[trimmed.start];
}

}  // namespace regccrf
