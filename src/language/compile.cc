// Language → Constraint: the cheapest unambiguous automaton (language/unambiguous.cc), laid out for the kernels.
#include "language/language.h"
#include "regccrf/constraint.h"

namespace regccrf {

Constraint compile(const Language& language, const Limits& limits) {
  const Unambiguous& cheapest = language.impl().cheapest({limits.states, limits.arcs, limits.seconds});
  return Constraint::from_automaton(cheapest.automaton, language.labels(), cheapest.method, language.text());
}

Constraint compile(const Language& language) { return compile(language, Limits()); }

}  // namespace regccrf
