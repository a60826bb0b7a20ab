// Topology: a compiled automaton as the kernels read it. Plain pointers into arrays that a Constraint owns; a view
// never allocates. Scores and per-instance masks are not part of it.
//
// A step of the dynamic programme factors through two kinds of places:
//   node     n = (q, a): about to leave state q by label a. alpha and beta live on nodes.
//   arrival  m = (r, a): has come into state r by label a.
// move: arrival (r, a) gathers the nodes (q, a) that have an arc (q, a, r).
// mix:  node (r, b) gathers the arrivals (r, a) of its own state, each times g[a, b].
// Nodes are sorted by (state, label) and so are arrivals, so a state's nodes and arrivals are runs.
//
// States are numbered so that those with the same in-labels and the same out-labels are neighbours, those with most
// products first.
#pragma once

#include <cstdint>
#include <vector>

#include "base/deferred.h"
#include "regccrf/automaton.h"

namespace regccrf {

struct Topology {
  std::int32_t K, Q, A;   // labels, states, arcs
  std::int32_t nodes;     // N
  std::int32_t arrivals;  // M
  std::int32_t start;     // start state
  std::int64_t products;

  const std::uint8_t* accepting;      // [Q]
  const std::int32_t* node_begin;     // [Q+1] nodes of state q: node_begin[q] … node_begin[q+1]-1
  const std::int32_t* node_label;     // [N]
  const std::int32_t* node_state;     // [N]
  const std::int32_t* arrival_begin;  // [Q+1]
  const std::int32_t* arrival_label;  // [M]
  const std::int32_t* arrival_state;  // [M]
  const std::uint8_t* node_accepts;   // [N] 1 when some arc of the node ends in an accepting state

  const std::int32_t* into_begin;    // [M+1] arcs by arrival …
  const std::int32_t* into_node;     // [A] … and the node each comes from
  const std::int32_t* from_begin;    // [N+1] arcs by node …
  const std::int32_t* from_arrival;  // [A] … and the arrival each goes to

  const Deferred* plan;  // what the CPU makes of it: inference/cpu/plan.h
};

// Every sequence is legal: an ordinary CRF.
inline bool accepts_everything(const Topology& t) { return t.Q == 1 && t.accepting[0] && t.nodes == t.K; }

// The memory behind a topology. Not to be moved while views of it are about.
class TopologyMemory {
 public:
  // `automaton`: trimmed, its states numbered by number_states(); it is kept by reference.
  TopologyMemory(const Automaton& automaton, int labels);
  Topology view() const;

 private:
  void add_places(const std::vector<std::vector<Label>>& labels, std::vector<std::int32_t>& begin,
                  std::vector<std::int32_t>& label, std::vector<std::int32_t>& state) const;
  void add_arcs();

  const Automaton& automaton_;
  int labels_;
  std::vector<std::int32_t> node_begin_, node_label_, node_state_, arrival_begin_, arrival_label_, arrival_state_;
  std::vector<std::int32_t> into_begin_, into_node_, from_begin_, from_arrival_;
  std::vector<std::uint8_t> node_accepts_;
  Deferred plan_;
};

// Renumbers states so that those with equal label sets are neighbours, those with most products first.
void number_states(Automaton& automaton);

}  // namespace regccrf
