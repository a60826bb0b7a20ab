// Automata as files, in the formats of OpenFst and its family (Pynini, Thrax, HFST, Foma, Kaldi): OpenFst's binary and
// AT&T text. Binary files carry their symbol table; text files are written with one beside them (`path`.syms). Only
// unweighted acceptors can be read; anything else is an Error. Language::load reads these files, too.
#pragma once

#include <string>

#include "regccrf/automaton.h"
#include "regccrf/labels.h"
#include "regccrf/language.h"

namespace regccrf {

struct LabelledAutomaton {
  Automaton automaton;
  Labels labels;
};
LabelledAutomaton read_fst(const std::string& path, const std::string& symbols = "", const Limits& limits = {});
LabelledAutomaton read_att(const std::string& path, const std::string& symbols = "", const Limits& limits = {});
void write_fst(const Automaton& automaton, const Labels& labels, const std::string& path);
void write_att(const Automaton& automaton, const Labels& labels, const std::string& path);

}  // namespace regccrf
