// Between Automaton and OpenFst's VectorFst. Only the files that speak to OpenFst include this; they are compiled as
// C++17. Label a is OpenFst label a + 1, since 0 is its epsilon. Weights are all One or Zero.
#pragma once

#include <fst/arcsort.h>
#include <fst/connect.h>
#include <fst/vector-fst.h>

#include "base/budget.h"
#include "regccrf/automaton.h"

namespace regccrf {

using Fst = fst::VectorFst<fst::StdArc>;
using Weight = fst::StdArc::Weight;

Fst to_fst(const Automaton& automaton);
// Connects and takes over; an FST without a start state becomes the one-state automaton that accepts nothing.
Automaton from_fst(Fst fst);

// OpenFst ends the process on an error unless it is told not to.
void make_errors_survivable();
// Throws Error if the last operation left the FST in OpenFst's error state.
void check_fst(const fst::Fst<fst::StdArc>& fst, const char* operation);

// Copies a delayed FST, stopping at the budget.
template <class Delayed>
Fst expand(const Delayed& delayed, const char* operation, const Budget& budget) {
  constexpr std::int64_t bytes_of_arc = 32, bytes_of_state = 160;  // of a vector of arcs for each state
  Meter meter(budget, operation);
  Fst out;
  std::int64_t arcs = 0;
  for (fst::StateIterator<Delayed> states(delayed); !states.Done(); states.Next()) {
    const auto q = states.Value();
    budget.check_time(operation);
    while (out.NumStates() <= q) out.AddState();
    out.SetFinal(q, delayed.Final(q));
    for (fst::ArcIterator<Delayed> iterator(delayed, q); !iterator.Done(); iterator.Next()) {
      const fst::StdArc& arc = iterator.Value();
      while (out.NumStates() <= arc.nextstate) out.AddState();
      out.AddArc(q, arc);
      ++arcs;
    }
    meter.size(out.NumStates(), arcs);
    meter.hold(bytes_of_arc * arcs + bytes_of_state * out.NumStates());
  }
  if (out.NumStates() > 0) out.SetStart(delayed.Start());
  check_fst(delayed, operation);
  return out;
}

Fst without_epsilon(const Fst& fst, const Budget& budget);

}  // namespace regccrf
