// Plan: where a constraint's nodes and arrivals lie so that vector units can work on them.
//
// Groups of states (constraint/groups.h) share one little matrix g[in, out]. A group with many states is laid out in
// columns, slot by slot with the states side by side:  cell = first + slot · lanes + state; a group with few states in
// rows, state by state with the slots side by side:  cell = first + state · slots + slot. Padding cells belong to no
// node or arrival: no run ever writes to them, and they stay at the semiring's zero.
//
// Forward, most arrivals need no move at all: the 16 arrivals (r, a) of neighbouring states mostly come from 16 nodes
// that are neighbours too, and the mix reads them where they are. A unit (16 lanes of a column's slot, or a row) that
// has no such source gets cells of its own behind the nodes, and the move forward fills these. A move is a list of
// runs: cells to … to+length-1 take (or add) cells from … from+length-1, in pieces of vectors' sizes. States are
// ordered within their groups so that runs are long; what is left over is moved cell by cell.
//
// Where nodes are few, or most pairs of them are legal, none of this is needed. The plan is then dense: the nodes, in
// the order of their labels, are the slots of one group in one row, in-slot i is node i itself, and the group's
// [nodes, nodes] matrix is g where an arc leads from the one node to the other's state, else zero. These are more
// products than groups would do, in fewer instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/topology.h"

namespace regccrf {

constexpr std::int32_t kLaneUnit = 8;   // columns and rows are padded to this many numbers
constexpr std::int32_t kUnit = 16;      // lanes of a column that are read from one place
constexpr std::int32_t kFewNodes = 64;  // up to so many a step is hardly more than its overhead, dense or not

struct Group {
  bool columns;
  std::int32_t states;
  std::int32_t lanes;                // of a column: states, padded
  std::int32_t in, out;              // slots, padded in rows
  std::int32_t first_in, first_out;  // into in_labels, out_labels
  std::int32_t units;                // of a column's slot
  std::int32_t source;               // into sources: [in, units] in columns, [states] in rows
  std::int32_t node, arrival;        // first cells
  std::int64_t matrix;               // first entry of its [in, out] among all the groups' matrices
  std::int64_t bigrams;              // first of its bigram sums: 16 for each entry in columns, 1 in rows
};

// A unit of a thin group: one out-slot and one or two in-slots, in columns. There tend to be many such groups (inside a
// span of some kind), so their units are listed in one row and done in one loop. With one in-slot the second is the
// first again, and the matrix entry behind it is padding.
struct Thin {
  std::int32_t width;            // 8 or 16 lanes
  std::int32_t node;             // cells
  std::int32_t source[2];        // in a forward step
  std::int32_t arrival[2];       // on the way back
  std::int64_t matrix, bigrams;  // its first of two
};

// Pairs of first cells, (to, from), of pieces of 16, 8 and 1 cells.
struct Pieces {
  std::vector<std::int32_t> sixteen, eight, one;
};

// First the copies, then the sums.
struct Move {
  Pieces copies, sums;
};

struct Plan {
  std::int32_t K;
  std::int32_t nodes, arrivals;  // cells; arrivals' serve the way back
  std::int32_t cells;            // of a forward step: nodes, then arrivals that have cells of their own
  std::int64_t matrix, bigrams;  // entries and sums of all groups
  std::vector<Group> groups;     // those that are not thin first
  std::int32_t thick;            // how many
  std::vector<Thin> thin;
  std::vector<std::int32_t> in_labels, out_labels;  // K for a slot of padding
  std::vector<std::int32_t> node_cell;              // [N]
  std::vector<std::int32_t> arrival_cell;           // [M]
  std::vector<std::uint8_t> node_exists;            // [node cells]
  std::vector<std::int32_t> sources;                // first cell, in a forward step, of each unit of arrivals
  Move forward;                                     // a forward step's node cells → its own cells of arrivals
  Move backward;                                    // arrival cells → node cells
  std::vector<std::uint8_t> legal;                  // [nodes, nodes] of a dense plan: where its matrix has entries
  bool dense() const { return !legal.empty(); }
};

// visit(entry of the matrices, entry of their transposes, a, b) for each bigram (a, b) of each group.
template <class Visit>
void for_each_gain(const Plan& plan, const Visit& visit) {
  for (const Group& group : plan.groups) {
    const std::int32_t *in = plan.in_labels.data() + group.first_in, *out = plan.out_labels.data() + group.first_out;
    for (std::int32_t i = 0; i < group.in; ++i) {
      for (std::int32_t j = 0; j < group.out; ++j) {
        if (in[i] == plan.K || out[j] == plan.K || (plan.dense() && !plan.legal[i * group.out + j])) continue;
        visit(group.matrix + i * group.out + j, group.matrix + j * group.in + i, in[i], out[j]);
      }
    }
  }
}

const Plan& plan_of(const Topology& topology);  // made when it is first asked for, kept with the constraint

}  // namespace regccrf
