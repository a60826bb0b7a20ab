// Which lengths an automaton's sequences have, as far as an error message needs them.
#pragma once

#include <cstdint>

#include "regccrf/automaton.h"

namespace regccrf {

struct Lengths {
  bool has = false;                     // a sequence of the length that was asked for
  std::int64_t shortest = -1;           // of all; -1: none seen
  std::int64_t below = -1, above = -1;  // the nearest to the one asked for; -1: none seen
};

Lengths lengths_around(const Automaton& automaton, std::int64_t length);

}  // namespace regccrf
