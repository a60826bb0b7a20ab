// Language → Constraint: the cheapest unambiguous automaton (language/unambiguous.cc), laid out for the kernels.
#include "language/language.h"
#include "regccrf/constraint.h"
#include "regccrf/language.h"

namespace regccrf {

Constraint compile(const Language& language, const Limits& limits) {
  const Unambiguous& cheapest = language.impl().cheapest({limits.states, limits.arcs, limits.seconds});
  return Constraint::from_automaton(cheapest.automaton, language.labels(), cheapest.method, language.text());
}

}  // namespace regccrf
