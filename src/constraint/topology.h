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
// States with the same in-labels and the same out-labels form a block: its mix is one dense product
// [states, in] × [in, out] with the same little matrix g[in, out]. States are numbered so that a block is a run of
// states, and hence its nodes and its arrivals are dense row-major matrices.
#pragma once

#include <cstdint>

namespace regccrf {

struct Block {
  std::int32_t first_state, states;  // states first_state … first_state + states - 1
  std::int32_t in, out;              // how many in-labels and out-labels each of them has
  std::int32_t first_in, first_out;  // offsets into block_in_labels / block_out_labels
};

struct Plan;  // inference/plan.h: the same, laid out for vector units

struct Topology {
  std::int32_t K, Q, A;   // labels, states, arcs
  std::int32_t nodes;     // N
  std::int32_t arrivals;  // M
  std::int32_t blocks;
  std::int32_t start;  // start state
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

  const Block* block;                    // [blocks] in order of first_state
  const std::int32_t* block_in_labels;   // label ids of each block's rows …
  const std::int32_t* block_out_labels;  // … and columns

  const Plan* plan;
};

// Every sequence is legal: an ordinary CRF.
inline bool accepts_everything(const Topology& t) { return t.Q == 1 && t.accepting[0] && t.nodes == t.K; }

}  // namespace regccrf
