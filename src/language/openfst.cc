// Between Automaton and OpenFst's VectorFst (see openfst.h), and the removal of epsilon, which automata of files have.
//
// OpenFst's eager constructions cannot be stopped. What it does here is used in its delayed form and copied out state
// by state, asking the budget on the way (expand).
#include "language/openfst.h"

#include <fst/rmepsilon.h>

#include <algorithm>
#include <string>

#include "language/algebra.h"

namespace regccrf {

void make_errors_survivable() { FLAGS_fst_error_fatal = false; }

void check_fst(const fst::Fst<fst::StdArc>& fst, const char* operation) {
  if (fst.Properties(fst::kError, false))
    throw Error("[" + std::string(operation) + "] the automata engine reports an error");
}

Fst to_fst(const Automaton& automaton) {
  make_errors_survivable();
  Fst fst;
  fst.AddStates(automaton.accepting.size());
  fst.SetStart(automaton.start);
  for (State q = 0; q < automaton.states(); ++q) {
    if (automaton.accepting[q]) fst.SetFinal(q, Weight::One());
  }
  for (const Arc& arc : automaton.arcs) {
    fst.AddArc(arc.from, fst::StdArc(arc.label + 1, arc.label + 1, Weight::One(), arc.to));
  }
  return fst;
}

Automaton from_fst(Fst fst) {
  fst::Connect(&fst);
  Automaton automaton;
  if (fst.Start() == fst::kNoStateId) {
    automaton.accepting = {0};
    return automaton;
  }
  automaton.start = fst.Start();
  automaton.accepting.resize(fst.NumStates());
  for (State q = 0; q < fst.NumStates(); ++q) {
    automaton.accepting[q] = fst.Final(q) != Weight::Zero();
    for (fst::ArcIterator<Fst> arcs(fst, q); !arcs.Done(); arcs.Next()) {
      automaton.arcs.push_back({q, arcs.Value().ilabel - 1, arcs.Value().nextstate});
    }
  }
  std::sort(automaton.arcs.begin(), automaton.arcs.end());
  automaton.arcs.erase(std::unique(automaton.arcs.begin(), automaton.arcs.end()), automaton.arcs.end());
  return automaton;
}

Fst without_epsilon(const Fst& fst, const Budget& budget) {
  if (!fst.Properties(fst::kEpsilons, true)) return fst;
  return expand(fst::RmEpsilonFst<fst::StdArc>(fst), "remove epsilon", budget);
}

Automaton remove_epsilon(const Automaton& automaton, const Budget& budget) {
  return from_fst(without_epsilon(to_fst(automaton), budget));
}

}  // namespace regccrf
