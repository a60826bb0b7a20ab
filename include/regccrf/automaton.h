// Automaton: states, arcs (q, a, r), one start state, accepting states; no epsilon. Plain data. Languages are built
// from automata, files contain them, and a Constraint is made from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace regccrf {

using Label = std::int32_t;  // 0 … K-1, as in labels.h
using State = std::int32_t;  // 0 … Q-1

struct Arc {
  State from;
  Label label;
  State to;
  friend bool operator==(const Arc& x, const Arc& y) { return x.from == y.from && x.label == y.label && x.to == y.to; }
  friend bool operator<(const Arc& x, const Arc& y) {
    if (x.from != y.from) return x.from < y.from;
    if (x.label != y.label) return x.label < y.label;
    return x.to < y.to;
  }
};

struct Automaton {
  State start = 0;
  std::vector<std::uint8_t> accepting;  // [Q], 0 or 1
  std::vector<Arc> arcs;                // [A], sorted by (from, label, to), distinct

  State states() const { return static_cast<State>(accepting.size()); }
};

// What inference on an automaton costs. `products` are multiplications per time step of the factored step
// (Σ over states of in-labels × out-labels); `nodes` is the memory of a step.
struct Size {
  std::int64_t states = 0;
  std::int64_t arcs = 0;
  std::int64_t nodes = 0;  // distinct (source state, label) pairs
  std::int64_t products = 0;
  std::int64_t cost() const { return products + arcs; }
};

Size measure(const Automaton& automaton);

// Throws Error unless every state and label number is in range (K = `labels`); sorts the arcs and drops duplicates.
void normalize(Automaton& automaton, int labels);

// At most one arc for each (state, label).
bool is_deterministic(const Automaton& automaton);

// How far a sequence gets. `accepted`, or the first position at which no continuation stays in the language (the
// sequence's length, if it ends too early) and the labels that were possible there, in label order.
struct Membership {
  bool accepted = false;
  std::size_t position = 0;
  std::vector<Label> possible;
  std::string rule = {};  // the rule that is broken there, as it is written, if rules are kept (constraint.h)
  explicit operator bool() const { return accepted; }
};

}  // namespace regccrf
