// The states that can be reached in n steps, for n = 0, 1, … (see lengths.h).
#include "automaton/lengths.h"

#include <vector>

namespace regccrf {

Lengths lengths_around(const Automaton& automaton, std::int64_t length) {
  Lengths found;
  std::vector<std::uint8_t> now(automaton.accepting.size(), 0), next;
  now[automaton.start] = 1;
  const std::int64_t last = length + automaton.states() + 1;
  for (std::int64_t n = 0; n <= last && found.above < 0; ++n) {
    bool accepts = false;
    for (std::size_t q = 0; q < now.size(); ++q) accepts = accepts || (now[q] && automaton.accepting[q]);
    if (accepts) {
      if (found.shortest < 0) found.shortest = n;
      if (n < length) found.below = n;
      if (n == length) found.has = true;
      if (n > length) found.above = n;
    }
    next.assign(now.size(), 0);
    for (const Arc& arc : automaton.arcs) next[arc.to] = next[arc.to] | now[arc.from];
    now.swap(next);
  }
  return found;
}

}  // namespace regccrf
