#include "tests/oracle/algorithm1.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "tests/oracle/automata.h"

namespace regccrf::oracle {

namespace {

using CoreSet = unsigned;               // bit i: core role i has begun
using Place = std::pair<int, CoreSet>;  // (role, p), or (outside, p) for p itself
constexpr int outside = -1;

Label begin_label(int role) { return 1 + 2 * role; }
Label inside_label(int role) { return 2 + 2 * role; }

class Builder {
 public:
  void accept(const Place& place) { automaton_.accepting[state(place)] = 1; }
  void arc(const Place& from, Label label, const Place& to) {
    const State q = state(from), r = state(to);
    automaton_.arcs.push_back({q, label, r});
  }
  // A span of `role` that starts with p begun and ends with t begun.
  void span(int role, CoreSet p, CoreSet t) {
    const Place s{role, p};
    arc({outside, p}, begin_label(role), {outside, t});
    arc({outside, p}, begin_label(role), s);
    arc(s, inside_label(role), s);
    arc(s, inside_label(role), {outside, t});
  }
  Automaton finish() {
    automaton_.start = state({outside, 0});
    return trim(automaton_);
  }

 private:
  State state(const Place& place) {
    const auto [it, fresh] = states_.try_emplace(place, automaton_.states());
    if (fresh) automaton_.accepting.push_back(0);
    return it->second;
  }
  std::map<Place, State> states_;
  Automaton automaton_;
};

int core_role(const Roles& roles, const std::string& name) {
  const auto it = std::find(roles.core.begin(), roles.core.end(), name);
  if (it == roles.core.end()) throw std::invalid_argument(name + " is not a core role");
  return static_cast<int>(it - roles.core.begin());
}

}  // namespace

Roles paper_roles() {
  return {{"ARG0", "ARG1", "ARG2", "ARG3", "ARG4"},
          {"ARGM-TMP", "ARGM-MOD", "ARGM-ADV", "ARGM-DIS", "ARGM-MNR", "ARGM-LOC", "ARGM-NEG", "ARGM-PRP", "ARGM-CAU",
           "ARGM-DIR", "ARGM-PRD", "ARGM-ADJ", "ARGM-EXT", "ARGM-GOL", "ARGM-PNC", "R-ARG0", "R-ARG1"},
          {{"C-ARG1", "ARG1"}}};
}

Labels role_labels(const Roles& roles) {
  std::vector<std::string> names = {"O"};
  const auto add = [&names](const std::string& role) {
    names.push_back("B-" + role);
    names.push_back("I-" + role);
  };
  for (const std::string& role : roles.core) add(role);
  for (const std::string& role : roles.other) add(role);
  for (const Continuation& continuation : roles.continuations) add(continuation.role);
  return Labels(std::move(names));
}

Automaton algorithm1(const Roles& roles) {
  const int cores = static_cast<int>(roles.core.size()), others = static_cast<int>(roles.other.size());
  Builder builder;
  for (CoreSet p = 0; p < (1u << cores); ++p) {
    builder.accept({outside, p});
    builder.arc({outside, p}, 0, {outside, p});
    for (int i = 0; i < others; ++i) builder.span(cores + i, p, p);
    for (std::size_t i = 0; i < roles.continuations.size(); ++i) {
      const CoreSet head = 1u << core_role(roles, roles.continuations[i].continues);
      if (p & head) builder.span(cores + others + static_cast<int>(i), p, p);
    }
    for (int r = 0; r < cores; ++r) {
      if (!(p & (1u << r))) builder.span(r, p, p | (1u << r));
    }
  }
  return builder.finish();
}

}  // namespace regccrf::oracle
