// Small automata for the oracles: trimming, reversal, product, and path counting, each the textbook way and none shared
// with the library that they check.
#pragma once

#include <cstdint>
#include <span>

#include "regccrf/automaton.h"

namespace regccrf::oracle {

// One state, every label: all sequences over K labels.
Automaton everything(int labels);

// All sequences again, by a ring of so many states: a language's product with it is the same language, and has that
// many times the states.
Automaton ring(int states, int labels);

// Only states on a path from the start to an accepting state, in their old order, arcs sorted. Empty (no states) when
// nothing is accepted.
Automaton trim(const Automaton& automaton);

// The reversed language of a deterministic automaton, as a co-deterministic automaton. A new start state stands for all
// accepting states, so that there is one.
Automaton reverse(const Automaton& automaton);

// The intersection: pairs of states.
Automaton product(const Automaton& left, const Automaton& right);

// How many accepting paths the sequence has.
std::int64_t count_paths(const Automaton& automaton, std::span<const Label> sequence);

}  // namespace regccrf::oracle
