// Automata as Graphviz text.
#pragma once

#include <string>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/labels.h"

namespace regccrf {

// States as circles (accepting ones doubled), an arrow into the start, parallel arcs as one with their labels. An
// automaton too large to be read as a drawing becomes a table of its kinds of states.
std::string to_dot(const Automaton& automaton, const Labels& labels, const std::string& title);

// Several, side by side, each in a frame with its own title.
struct Drawn {
  const Automaton* automaton;
  std::string title;
};
std::string to_dot(const std::vector<Drawn>& parts, const Labels& labels, const std::string& title);

}  // namespace regccrf
