// Internal companions of the public Automaton: what the language and constraint rooms ask of it. No engine needed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

// begin[q] … begin[q+1]-1 are the arcs that leave q. [Q+1]
std::vector<std::int64_t> arcs_by_state(const Automaton& automaton);

// Sorts the arcs and drops duplicates.
void sort_arcs(Automaton& automaton, const Budget& budget = {});

inline std::int64_t bytes_of(const Automaton& automaton) {
  return bytes_of(automaton.arcs) + bytes_of(automaton.accepting);
}

// Whether a trimmed automaton is unambiguous; nothing when the answer needs more than `most_pairs` pairs of states.
// LimitError at the budget's end.
std::optional<bool> test_unambiguous(const Automaton& automaton, std::int64_t most_pairs, const Budget& budget = {});

// [Q] 1 for states on some path from the start to an accepting state.
std::vector<std::uint8_t> useful_states(const Automaton& automaton, const Budget& budget = {});

// The same without its other states. One state and no arcs where no sequence is accepted.
Automaton without_useless_states(const Automaton& automaton, const Budget& budget = {});

// Nothing where no sequence is accepted. Of several the first by label ids.
std::optional<std::vector<Label>> shortest_sequence(const Automaton& automaton);

// Follows sequences through a trimmed automaton; the scratch memory is kept from one sequence to the next.
class Tracer {
 public:
  explicit Tracer(const Automaton& automaton);  // keeps a reference
  Membership trace(const Label* sequence, std::size_t length);
  std::vector<Label> possible_after(const Label* sequence, std::size_t length);  // labels that may come next

 private:
  std::size_t follow(const Label* sequence, std::size_t length);  // how far it gets; the states reached are in now_
  std::vector<Label> labels_out_of(const std::vector<State>& states) const;
  std::pair<const Arc*, const Arc*> arcs_of(State q, Label label) const;

  const Automaton& automaton_;
  std::vector<std::int64_t> begin_;
  Label labels_ = 0;  // of a small automaton, in which arcs are looked up: one more than the largest; else 0
  std::vector<std::int32_t> first_;  // [Q · labels + 1] where the arcs of (state, label) begin
  std::vector<std::uint64_t> mark_;  // [Q] the last round that put the state into `next_`
  std::uint64_t round_ = 0;
  std::vector<State> now_, next_;
};

}  // namespace regccrf
