// Sweep: one direction of the dynamic programme, laid out for a GPU. Made on the host; plain numbers.
//
// Forwards and backwards are the same thing with the roles of nodes and arrivals exchanged (topology.h):
//   forward   cell (r, b), a node:      next[r, b] = w[b] · Σ_a g[a, b] · Σ_{arcs (q, a, r)} now[q, a]
//   backward  cell (r, a), an arrival:  next[r, a] = w[a] · Σ_b g[a, b] · Σ_{arcs (r, b, s)} now[s, b]
// So a cell is a weight times a dot product over the slots of its state; a slot is a sum over a few cells of the step
// before, and an entry of g stands between a slot and a cell.
//
// A slot names up to two cells, its sources; where it has more, their sum gets a cell of its own (an extra), made in a
// round of its own before the step. States with few slots (thin) are done cell by cell. The others are put into groups
// of alike states, padded to the union of their slots' labels and their cells' labels, so that a group is one dense
// product with a matrix [slots, labels] that its states share.
//
// A unit is what a warp does at a time: 32 thin cells, or some tiles (one state, kTile neighbouring cells) of a group,
// each by `lanes` threads that split the slots among them.
//
// A small enough sweep is resident: every thread has at most one tile of a group, kResidentSlots of its slots and
// kResidentThin thin cells, and keeps what it needs of g and of the topology in its registers from the first step to
// the last.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/topology.h"

namespace regccrf {

constexpr std::int32_t kTile = 8;
constexpr std::int32_t kThinSlots = 4;                            // a thin state has at most so many
constexpr std::int32_t kResidentSlots = 12, kResidentWarps = 12;  // as many registers as a thread can have, almost
constexpr std::int32_t kResidentThin = 4, kResidentTerms = 2;     // thin cells of a thread, and products of such a cell
constexpr std::int32_t kResidentCells = 16000;                    // 16 bits hold the place of a float

struct Source {
  std::int32_t x, y;  // cells; Sweep::zero() where there is none
};

struct SweepGroup {
  std::int32_t states, slots;
  std::int32_t width;         // cells of a state, a multiple of 4
  std::int32_t tiles;         // of a state
  std::int32_t first_cell;    // cell = first_cell + o · states + state: neighbours come from neighbours, mostly
  std::int32_t first_source;  // source = first_source + state · slots + i
  std::int32_t first_entry;   // entry = first_entry + i · width + o
};

struct Unit {
  std::int32_t group;  // -1: thin cells
  std::int32_t first;  // first tile (tile-major: tile · states + state), or first thin cell
  std::int32_t lanes;  // threads a tile: 1, 2, 4 or 8
};

// Which warp does which units.
struct Schedule {
  std::int32_t warps = 0;
  std::vector<std::int32_t> begin;  // [warps + 1] into units
  std::vector<Unit> units;
};

struct Sweep {
  std::int32_t K = 0;
  std::int32_t cells = 0, extras = 0;
  std::int32_t zero() const { return cells; }                    // the cell that stays at the semiring's zero
  std::int32_t all_cells() const { return cells + 1 + extras; }  // extras lie behind the zero
  bool two = false;                                              // some slot has two sources

  std::vector<std::int32_t> label;   // [cells] K for padding
  std::vector<std::uint8_t> begins;  // [cells] where the direction's first step puts weight
  std::vector<std::int32_t> cell;    // [nodes or arrivals] → cell

  std::vector<SweepGroup> groups;
  std::vector<Source> source;       // of the groups' slots
  std::vector<std::int32_t> entry;  // [entries] index into g [K, K], or -1

  std::int32_t thin = 0, first_thin = 0, thin_slots = 0;
  std::vector<Source> thin_source;       // [thin_slots, thin]
  std::vector<std::int32_t> thin_entry;  // [thin_slots, thin] index into g, or -1

  std::vector<std::int32_t> extra_begin{0};  // [extras + 1]
  std::vector<std::int32_t> extra_source;

  Schedule general;
  Schedule resident;  // a group's unit for each of the first warps; no warps at all: it does not fit
};

// `most_warps`: of the block that will run the general schedule.
Sweep forward_sweep(const Topology& topology, std::int32_t most_warps);
Sweep backward_sweep(const Topology& topology, std::int32_t most_warps);

// What joins the two: an arrival's weight is alpha (a sum over forward cells) times x (its backward cell).
struct Join {
  std::vector<std::int32_t> label_begin;  // [K + 1] arrivals by label
  std::vector<std::int32_t> cell;         // [arrivals] backward cell …
  std::vector<std::int32_t> place;  // [arrivals] … where its alpha is put: first_source + i · states + state of a
                                    // group's slot, or behind all of those …
  std::vector<Source> first;        // [arrivals] … the first two forward cells that flow into it, or the zero …
  std::vector<std::int32_t> begin;  // [arrivals + 1] … and the others
  std::vector<std::int32_t> source;
  std::int32_t places = 0;  // groups' slots that are padding among them

  std::vector<Source> node_first;  // [forward cells] the first two backward cells that a node flows into, or the zero …
  std::vector<std::int32_t> node_begin;  // [forward cells + 1] … and the others
  std::vector<std::int32_t> node_target;

  // Bigrams: dense in the forward groups' matrices, the rest as lists of (backward cell, forward cell).
  std::vector<std::int32_t> slot_cell;     // [forward sources] backward cell of a group's slot, or the zero
  std::int32_t dense = 0;                  // entries of the forward groups' matrices
  std::vector<std::int32_t> sparse_begin;  // [sparse + 1]
  std::vector<Source> sparse;              // x: place, y: forward cell
  std::vector<std::int32_t> pair_begin;  // [K·K + 1] the dense entries (below `dense`) and sparse ones of each (a, b)
  std::vector<std::int32_t> pair_entry;
};
Join make_join(const Topology& topology, const Sweep& forward, const Sweep& backward);

}  // namespace regccrf
