// The algebra of automata. Every function takes and gives epsilon-free automata; results are trimmed (an automaton for
// the empty language has one state and no arcs). All stop at their budget: the clock is looked at in every inner loop,
// and what their arrays hold is counted.
#pragma once

#include <vector>

#include "base/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

// Takes arcs with label -1 as epsilon. In openfst.cc.
Automaton remove_epsilon(const Automaton& automaton, const Budget& budget);
Automaton reverse(const Automaton& automaton, const Budget& budget);
// At most one arc for each state and label; breadth first, so that states are numbered by their first sequence.
Automaton determinise(const Automaton& automaton, const Budget& budget);
// Two automata have the same language iff these are equal.
Automaton minimal_dfa(const Automaton& automaton, const Budget& budget);
// The reverse of the minimal DFA of the reverse: at most one arc into each state for each label.
Automaton codeterministic(const Automaton& automaton, const Budget& budget);
// Merges states that cannot be told apart looking forward. Of a trimmed DFA, that is the minimal one. In reduce.cc.
Automaton merge_forward(const Automaton& automaton, const Budget& budget);
// Merges states that cannot be told apart looking forward, then looking backward. Keeps unambiguity. Where that would
// take very many steps, merges fewer. In reduce.cc.
Automaton reduce(const Automaton& automaton, const Budget& budget);
Automaton intersect(const Automaton& x, const Automaton& y, const Budget& budget);
// Of all at once: no product of only some of them is built, which may be far larger than that of all.
Automaton intersect_all(const std::vector<const Automaton*>& operands, const Budget& budget);
Automaton difference(const Automaton& x, const Automaton& y, const Budget& budget);
bool equivalent(const Automaton& x, const Automaton& y, const Budget& budget);

inline bool accepts_nothing(const Automaton& trimmed) {
  return trimmed.arcs.empty() && !trimmed.accepting[trimmed.start];
}

}  // namespace regccrf
