// OpenFst's binary files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "language/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

using Symbols = std::map<std::int64_t, std::string>;  // OpenFst's numbers for labels; 0 is epsilon

struct NamedAutomaton {
  Automaton automaton;
  std::vector<std::string> names;  // [K]
};

bool looks_like_fst(const std::string& bytes);
// An unweighted acceptor, with epsilon or without. `symbols` stands in for a missing table; `path` appears in errors only.
NamedAutomaton decode_fst(const std::string& bytes, const Symbols& symbols, const std::string& path, const Budget& budget);
std::string encode_fst(const Automaton& automaton, const std::vector<std::string>& names);

}  // namespace regccrf
