// AT&T text, the automata format that OpenFst, Foma and HFST print and read; and OpenFst's symbol tables as text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "regccrf/automaton.h"

namespace regccrf {

// label number → name, from lines `name number`. `path` appears in errors only.
std::map<std::int64_t, std::string> decode_symbols(const std::string& text, const std::string& path);
std::string encode_symbols(const std::vector<std::string>& names);

// An acceptor as lines `from to label [weight]` (or `from to label label`, as HFST prints) and `state [weight]`;
// epsilon is kept as label -1 for the caller to remove. Labels are what `symbols` knows by name or number, or else the
// words themselves.
struct AttFile {
  Automaton automaton;             // arcs may have label -1
  std::vector<std::string> names;  // [K]
};
AttFile decode_att(const std::string& text, const std::map<std::int64_t, std::string>& symbols,
                   const std::string& path);
std::string encode_att(const Automaton& automaton, const std::vector<std::string>& names);

}  // namespace regccrf
