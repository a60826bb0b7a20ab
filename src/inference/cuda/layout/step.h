// Sweep: one direction of the dynamic programme, laid out for a GPU. Made on the host; plain numbers.
//
// Forwards and backwards are the same thing with the roles of nodes and arrivals exchanged (topology.h):
//   forward   out (r, b), a node:      next[r, b] = w[b] · Σ_a g[a, b] · Σ_{arcs (q, a, r)} now[q, a]
//   backward  out (r, a), an arrival:  next[r, a] = w[a] · Σ_b g[a, b] · Σ_{arcs (r, b, s)} now[s, b]
// So an out is a weight times a dot product over the slots of its state; a slot is a sum over a few outs of the step
// before, and an entry of g stands between a slot and an out. Where an out is stored is its cell.
//
// A slot names up to two cells, its sources; where it has more, their sum gets a cell of its own (an extra), made in a
// round of its own before the step. States with few slots (thin) are done out by out. The others are put into groups
// of alike states, padded to the union of their slots' labels and their outs' labels, so that a group is one dense
// product with a matrix [slots, labels] that its states share.
//
// A unit is what a warp does at a time: 32 thin outs, or some tiles (one state, kTile neighbouring outs) of a group,
// each by `lanes` threads that split the slots among them.
//
// A small enough sweep is resident: what its threads need of g is in registers from the first step to the last, and
// each has up to kResidentThin thin outs. For that the cells are put where they are wanted: the sources of a state's
// slots lie side by side, in one row for the first and one for the second. That needs an out to be wanted by one slot
// of a group at most. There are two ways to share out a step:
//   resident  a thread has one tile and `slots` of its rows, for `repeats` states, and reads its slots as a vector;
//             for floats
//   tensor    a warp has 8 or 16 columns of a group's matrix, for 8 or 16 states, as the tensor cores multiply them;
//             for sums of products in double
//
// A large one is cut into kShares shares, each some states of the groups and some thin outs, so that a cluster of
// blocks can do a step together: a block does some of the shares. A share has copies of the cells that its slots want,
// with numbers of its own, and an out is sent to each share that wants it. The cut is the same for every size of
// cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/topology.h"

namespace regccrf {

constexpr std::int32_t kTile = 8;
constexpr std::int32_t kThinSlots = 4;                         // a thin state has at most so many
constexpr std::int32_t kResidentThin = 4, kResidentTerms = 2;  // thin outs of a thread, and products of such an out
constexpr std::int32_t kResidentCells = 16000;                 // 16 bits hold the place of a float

// Slots and states of a thread, and the warps whose registers have room for that. Tried in this order.
struct ResidentKind {
  std::int32_t slots, repeats, warps;
};
constexpr std::int32_t kShares = 16;            // a power of two; also the largest cluster
constexpr std::int32_t kSharedWarps = 16;       // of a block of a cluster: registers for twice as many as fit otherwise
constexpr std::int32_t kSharedProducts = 4000;  // a step with fewer is not worth a cluster
constexpr std::int32_t kTensorSlots = 64, kTensorWarps = 16;
constexpr ResidentKind kResidentKinds[] = {{4, 1, 20}, {12, 1, 12}, {8, 2, 16}};

constexpr std::int32_t round_up(std::int32_t x, std::int32_t unit) { return (x + unit - 1) / unit * unit; }

struct Source {
  std::int32_t x, y;  // cells; Sweep::zero() where there is none
};

struct SweepGroup {
  std::int32_t states, slots;
  std::int32_t width;         // outs of a state, a multiple of 4
  std::int32_t tiles;         // of a state
  std::int32_t first_out;     // out = first_out + state · width + o
  std::int32_t first_source;  // source = first_source + state · slots + i
  std::int32_t first_entry;   // entry = first_entry + i · width + o
  // If resident: the row of a state's slots begins at first_cell + state · stride, that of their second sources, if
  // there are planes for those, states · stride behind. A thread does states s, s + band, …
  std::int32_t first_cell, stride, planes, band;
  std::int32_t first_gain;  // if resident: into Sweep::gain_entry
};

struct Unit {
  std::int32_t group;  // -1: thin outs
  std::int32_t first;  // first tile (tile-major: tile · states + state, or tile · band + state), or first thin out
  std::int32_t lanes;  // threads a tile: a power of two, 1 to 8; 2 to 16 if resident
  std::int32_t share = 0;
};

// 8 · columns outs of 8 · tiles states, from these on; a warp each.
struct TensorUnit {
  std::int32_t group, state, out, tiles, columns;
};

// Which warp does which units.
struct Schedule {
  std::int32_t warps = 0;
  std::vector<std::int32_t> begin;  // [warps + 1] into units
  std::vector<Unit> units;
};

// Where the sources of a cell's out are, if resident: in row `row` with the column of g from gain `entry` on, or, of a
// thin out (group kThinGroup), where its number `entry` says.
constexpr std::uint16_t kThinGroup = 0xffff;
struct RowOf {
  std::uint16_t row, entry, label : 15, begins : 1, group;  // `begins`: as in Sweep
};

// From a slot of a thread to the next in Sweep::gain_entry.
constexpr std::int32_t gain_row(std::int32_t tiles, std::int32_t lanes) { return kTile * tiles * lanes + 4; }

// A cell of a share, in one number.
constexpr std::uint32_t kNoCell = 0xffffffff;
constexpr std::uint32_t shared_cell(std::int32_t share, std::int32_t cell) {
  return static_cast<std::uint32_t>(share) << 16 | static_cast<std::uint32_t>(cell);
}

// An out and where it goes: its label, two shared cells or kNoCell, and the others from `rest` on in a list, up to
// kNoCell.
struct alignas(16) SharedOut {
  std::int32_t label;
  std::uint32_t x, y;
  std::int32_t rest;  // -1: no others
};

struct Shares {
  std::int32_t room = 0;  // for a share's cells: 0 stays at the semiring's zero, copies, extras; 0: no shares
  std::vector<std::int32_t> copies;  // [kShares] how many
  std::vector<SweepGroup> groups;    // pieces of the sweep's: states of one share
  // As in the sweep, in the numbers of the share that has the state or out; but neighbouring states of a piece lie side
  // by side: its source = first_source + i · states + state, and its out = first_out + o · states + state.
  std::vector<Source> source, thin_source;
  std::vector<SharedOut> outs;
  std::vector<std::int32_t> number;  // [outs] the sweep's number
  std::vector<std::uint32_t> rest;
  std::vector<std::int32_t> extra_first;     // [kShares + 1] the extras of each share
  std::vector<std::int32_t> extra_begin{0};  // [extras + 1]
  std::vector<std::int32_t> extra_source;
  std::vector<std::uint32_t> extra_cell;  // [extras] a shared cell
  Schedule schedule[4];  // for clusters of 2, 4, 8, 16: `warps` for each block, one block after the other
};

struct Sweep {
  std::int32_t K = 0;
  std::int32_t outs = 0, cells = 0, extras = 0;
  std::int32_t zero() const { return cells; }  // the cell that stays at the semiring's zero
  std::int32_t all_cells() const { return cells + 1 + extras + (kind >= 0); }  // extras and trash lie behind the zero
  bool two = false;                                                            // some slot has two sources

  std::vector<std::int32_t> label;   // [outs] K for padding
  std::vector<std::uint8_t> begins;  // [outs] where the direction's first step puts weight
  std::vector<std::int32_t> stored;  // [outs] → cell
  std::vector<std::int32_t> out_of;  // [cells] → the out that is stored there; -1: none
  std::vector<std::int32_t> out;     // [nodes or arrivals] → out
  std::int32_t cell(std::int32_t place) const {
    return stored[static_cast<std::size_t>(out[static_cast<std::size_t>(place)])];
  }

  std::vector<SweepGroup> groups;
  std::vector<Source> source;       // of the groups' slots
  std::vector<std::int32_t> entry;  // [entries] index into g [K, K], or -1

  std::int32_t thin = 0, first_thin = 0, thin_slots = 0;
  std::vector<Source> thin_source;       // [thin_slots, thin]
  std::vector<std::int32_t> thin_entry;  // [thin_slots, thin] index into g, or -1

  std::vector<std::int32_t> extra_begin{0};  // [extras + 1]
  std::vector<std::int32_t> extra_source;

  Schedule general;
  std::int64_t cost = 0;      // of all units of the general schedule, about one for an instruction of a warp
  std::int32_t kind = -1;     // of kResidentKinds; -1: not resident
  std::int32_t trash = -1;    // if resident: a cell that nobody reads, behind the others; padding is stored there
  Schedule resident;          // a group's unit for each of the first warps
  std::vector<RowOf> row_of;  // [cells] if resident
  // If resident: a group's entries as its threads take them, four outs at a time, so that those of neighbours lie side
  // by side: [slots of a thread, halves of a tile, tiles, lanes, 4], -1 for padding, and some behind each slot so that
  // those of a column lie apart.
  std::vector<std::int32_t> gain_entry;
  std::int32_t tensor_warps = 0;   // 0: not with tensor cores
  std::vector<TensorUnit> tensor;  // for each of the first warps
  Shares shares;                   // none if resident, or small
};

// Both directions; both are resident, in the same kind, or none is. `most_warps`: of the block that will run the
// general schedule.
struct Sweeps {
  Sweep forward, backward;
};
Sweeps make_sweeps(const Topology& topology, std::int32_t most_warps);

}  // namespace regccrf
