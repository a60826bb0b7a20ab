// OpenFst's binary files.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

using Symbols = std::map<std::int64_t, std::string>;  // OpenFst's numbers for labels; 0 is epsilon

struct NamedAutomaton {
  Automaton automaton;
  std::vector<std::string> names;  // [K]
};

bool looks_like_fst(const std::string& bytes);
// An unweighted acceptor, with epsilon or without. `symbols` stands in for a missing table; `path` appears in errors
// only.
NamedAutomaton decode_fst(const std::string& bytes, const Symbols& symbols, const std::string& path,
                          const Budget& budget);
std::string encode_fst(const Automaton& automaton, const std::vector<std::string>& names);

// A transducer with weights, for writing. Symbol 0 is epsilon; names are of symbols 1, 2, ….
struct WeightedFst {
  struct Arc {
    std::int32_t from, to, input, output;
    double weight;  // as OpenFst has it: −score; +inf for −inf
  };
  std::int32_t states = 0, start = 0;
  std::vector<std::pair<std::int32_t, double>> final;  // state, weight
  std::vector<Arc> arcs;
  std::vector<std::string> input_names, output_names;
};
std::string encode_weighted_fst(const WeightedFst& fst, int semiring);  // 0 tropical, 1 log, 2 log in double

}  // namespace regccrf
