#include "constraint/labels_in_use.h"

namespace regccrf {

std::vector<bool> labels_in_use(const Constraint& constraint) {
  std::vector<bool> used(static_cast<std::size_t>(constraint.labels().size()), false);
  const Constraint base = constraint.base();
  for (const Arc& arc : base.automaton().arcs) used[arc.label] = true;
  return used;
}

}  // namespace regccrf
