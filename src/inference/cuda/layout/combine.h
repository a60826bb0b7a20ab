// CombineLayout: how alpha and beta of two layouts (step.h) are combined. A bigram's weight at a position is alpha at
// an arrival (m, a sum over forward cells), g, and y at an out, a sum over the backward cells that a node flows into. A
// label's is the sum of alpha · y over its nodes, both at its own position, or of m · beta over its arrivals; in the
// last position it is alpha at the nodes where a sequence may end.
//
// Bigrams are sums over pairs (arrival, out) of one state: of a forward group's states all at once, warp tile by warp
// tile of its matrix; of sparse states in rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/cuda/layout/step.h"

namespace regccrf {

constexpr std::int32_t kWarpTileRows = 16, kWarpTileColumns = 24;

// Some rows and columns of a group's matrix.
struct WarpTile {
  std::int32_t states, slots, width;  // of the group; slots and width: places and outs of a state, multiples of 4
  std::int32_t rows, columns;         // up to kWarpTileRows, kWarpTileColumns
  std::int32_t place, out, entry;     // of its first row and column, in the first state
};
// Pairs whose products add up, in rounds of one label, or of one bigram. A warp does kRoundsTogether of them at a time,
// each by kRoundLanes lanes: the pair that a lane of those does in its n-th step is round · height + n · kRoundLanes +
// lane.
constexpr std::int32_t kRoundLanes = 2, kRoundsTogether = 32 / kRoundLanes, kRoundSteps = 4, kMostHeight = 32;
struct PairRounds {
  std::int32_t height = 0;             // pairs of a round, up to kMostHeight, a multiple of kRoundSteps · kRoundLanes
  std::vector<Source> pair;            // [rounds, height]
  std::vector<std::int32_t> key;       // [rounds] label or bigram
  std::vector<std::int32_t> begin{0};  // [keys + 1] the rounds of each
  std::int32_t rounds() const { return static_cast<std::int32_t>(key.size()); }
};
// Things by key: those of key k are order[begin[k]] … order[begin[k + 1] - 1], lower numbers first.
struct ByKey {
  std::vector<std::int32_t> begin, order;  // [keys + 1], [things with a key]
};
ByKey sort_by_key(std::int32_t keys, const std::vector<std::int32_t>& key_of);  // key_of: -1 for none
struct CombineLayout {
  std::vector<std::int32_t> place;  // [arrivals] where alpha at each is put: one of a group's slots, or behind those
  std::vector<Source> out;          // [outs of the forward layout, and some where nothing is] backward cells, or zeros
  std::int32_t no_out = 0;          // the first of those
  bool all_out = true;              // those two are all that a node flows into
  // The groups' outs by fours, as the backward cells from x and from y on, or the zero: where backward rows lie as the
  // forward groups want them, and cells that hold nothing are zero. Empty where they do not.
  std::vector<Source> quad;
  std::int32_t dense_outs = 0;  // of groups; sparse ones come behind
  std::vector<WarpTile> warp_tiles;
  std::int32_t places = 0;  // a multiple of 4
  bool copied = false;      // a place is a forward cell: every arrival has one source, and alpha itself is m

  PairRounds nodes;     // by label, x: forward cell, y: out; none if not copied
  PairRounds arrivals;  // by label, x: place, y: backward cell

  // Bigrams: dense in the forward groups' matrices, the rest in rounds.
  std::int32_t dense = 0;  // entries of the forward groups' matrices
  PairRounds sparse;       // by bigram, x: place, y: out
  ByKey pair;              // by (a, b): its dense entries, and dense + its sparse rounds

  ByKey end;  // by label: the forward cells of its nodes where a sequence may end
};
CombineLayout make_combine_layout(const Topology& topology, const StepLayout& forward, const StepLayout& backward);

// All bigrams by pair of labels, x: arrival, y: node, of the same state; -1 for padding.
PairRounds bigram_rounds(const Topology& topology);

}  // namespace regccrf
