// The paper's Algorithm 1 (Appendix D): the automaton of semantic role labelling, made by hand.
//
// A state is the set p of core roles that have begun so far, or (r, p): inside a span of role r that will continue,
// with p the set before it. A core role begins only where p lacks it; a continuation role only where p holds what it
// continues. Whether a span goes on is guessed when a label is read, so the automaton is not deterministic, and it is
// unambiguous because only (r, p) can read I-r.
//
// The printed pseudo-code has (r, Inside r, s) and (r, Inside r, p) in two places where s is meant for the source.
#pragma once

#include <string>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/labels.h"

namespace regccrf::oracle {

struct Continuation {
  std::string role;       // C-ARG1
  std::string continues;  // ARG1, a core role
};

struct Roles {
  std::vector<std::string> core;
  std::vector<std::string> other;
  std::vector<Continuation> continuations;
};

// The roles of the paper's experiments: 5 core, 17 others, C-ARG1.
Roles paper_roles();

// O, then B-r and I-r for each role: core, other, continuations.
Labels role_labels(const Roles& roles);

// Over role_labels(roles), trimmed.
Automaton algorithm1(const Roles& roles);

}  // namespace regccrf::oracle
