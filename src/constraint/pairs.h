// Pairs: scores that depend on the input and on two neighbouring labels, without a word of it in the kernels. A label
// gets a mark that says which label came before: the marked label (a, b) is b after a, and (b) is b at the beginning.
// Over marked labels a score of the pair (a, b) at position t is an emission, and no transitions are left.
//
//   h'[t, (a, b)] = h[t, b] + g[a, b] + pair score of (a, b) at t;   h'[0, (b)] = h[0, b]
//
// A sequence of labels is one sequence of marked labels, with the same score. So every question has the same answer;
// where it is about labels, marks are summed over or left out.
#pragma once

#include "regccrf/constraint.h"

namespace regccrf {

// Numbers of marked labels: (a, b) is a · K + b, and (b) is K · K + b.
struct MarkedLabels {
  int K;

  int size() const { return K * (K + 1); }
  Label first(Label b) const { return K * K + b; }
  Label pair(Label a, Label b) const { return a * K + b; }
  Label label(Label marked) const { return marked % K; }
};

// The constraint's sequences, as marked labels. Rules that are kept read the label and ignore the mark. LimitError
// where that takes too much memory: products grow by about the number of labels.
Constraint over_pairs(const Constraint& constraint);

}  // namespace regccrf
