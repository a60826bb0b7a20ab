// StepLayout: one direction of the dynamic programme, laid out for a GPU. Made on the host; plain numbers.
//
// Forwards and backwards are the same thing with the roles of nodes and arrivals exchanged (topology.h):
//   forward   out (r, b), a node:      next[r, b] = w[b] · Σ_a g[a, b] · Σ_{arcs (q, a, r)} now[q, a]
//   backward  out (r, a), an arrival:  next[r, a] = w[a] · Σ_b g[a, b] · Σ_{arcs (r, b, s)} now[s, b]
// So an out is a weight times a dot product over the slots of its state; a slot is a sum over a few outs of the step
// before, and an entry of g stands between a slot and an out. Where an out is stored is its cell.
//
// A slot names up to two cells, its sources; where it has more, their sum gets a cell of its own (a fan-in), computed
// before the step. States with few slots (sparse) are done out by out. The others are put into groups
// of alike states, padded to the union of their slots' labels and their outs' labels, so that a group is one dense
// product with a matrix [slots, labels] that its states partition.
//
// A unit is what a warp does at a time: 32 sparse outs, or some tiles (one state, kTile neighbouring outs) of a group,
// each by `lanes` threads that split the slots among them.
//
// A small layout is kept in registers: a thread loads what it needs of g once, before the first step, and has up to
// kSparsePerThread sparse outs. Cells are then stored where they are read: the sources of a state's slots lie side by
// side, in one row for the first and one for the second, so that a thread reads them as vectors. This requires that an
// out is read by one slot of a group at most. There are two ways to divide a step among threads:
//   registers  a thread has one tile and `slots` of its rows, for `repeats` states; for floats
//   tensor     a warp has 8 or 16 columns of a group's matrix, for 8 or 16 states, as the tensor cores multiply them;
//              for sums of products in double
//
// A large layout is cut into kPartitions partitions, each with some states of the groups and some sparse outs, for
// clusters of blocks: a block computes some of the partitions. A partition has its own copies of the cells that its
// slots read, numbered on their own, and an out is sent to each partition that reads it. The cut is the same for every
// size of cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/topology.h"

namespace regccrf {

constexpr std::int32_t kTile = 8;
constexpr std::int32_t kSparseSlots = 4;                        // a sparse state has at most so many
constexpr std::int32_t kSparsePerThread = 4, kSparseTerms = 2;  // sparse outs of a thread, and products of such an out
constexpr std::int32_t kRegisterCells = 16000;                  // 16 bits hold the place of a float

// Slots and states of a thread, and the warps whose registers have room for that. Tried in this order.
struct RegisterTile {
  std::int32_t slots, repeats, warps;
};
constexpr std::int32_t kPartitions = 16;    // a power of two; also the largest cluster
constexpr std::int32_t kClusterWarps = 16;  // of a block of a cluster: registers for twice as many as fit otherwise
constexpr std::int32_t kClusterProducts = 4000;  // a step with fewer is not worth a cluster
constexpr std::int32_t kTensorSlots = 64, kTensorWarps = 16;
constexpr RegisterTile kRegisterTiles[] = {{4, 1, 20}, {12, 1, 12}, {8, 2, 16}};

template <class Integer, class Unit>
constexpr auto ceil_div(Integer x, Unit unit) {
  return (x + unit - 1) / unit;
}
template <class Integer, class Unit>
constexpr auto round_up(Integer x, Unit unit) {
  return ceil_div(x, unit) * unit;
}

struct alignas(8) Source {
  std::int32_t x, y;  // cells; StepLayout::zero() where there is none
};

struct DenseGroup {
  std::int32_t states, slots;
  std::int32_t width;         // outs of a state, a multiple of 4
  std::int32_t tiles;         // of a state
  std::int32_t first_out;     // out = first_out + state · width + o
  std::int32_t first_source;  // source = first_source + state · slots + i
  std::int32_t first_entry;   // entry = first_entry + i · width + o
  // If in registers: the row of a state's slots begins at first_cell + state · stride, that of their second sources, if
  // there are planes for those, states · stride behind. A thread does states s, s + band, …
  std::int32_t first_cell, stride, planes, band;
  std::int32_t first_gain;  // if in registers: into StepLayout::gain_entry
};

struct Unit {
  std::int32_t group;  // -1: sparse outs
  std::int32_t first;  // first tile (tile-major: tile · states + state, or tile · band + state), or first sparse out
  std::int32_t lanes;  // threads a tile: a power of two, 1 to 8; 2 to 16 if in registers
  std::int32_t partition = 0;
};

// 8 · columns outs of 8 · tiles states, from these on; a warp each.
struct TensorUnit {
  std::int32_t group, state, out, tiles, columns;
};

// Which warp does which units.
struct Schedule {
  std::int32_t warps = 0;
  std::vector<std::int32_t> begin{0};  // [warps + 1] into units; not if in registers, where a warp has one
  std::vector<Unit> units;
};

// Where the sources of a cell's out are, if in registers: in row `row` with the column of g from gain `entry` on, or,
// of a sparse out (group kSparseGroup), where its number `entry` says.
constexpr std::uint16_t kSparseGroup = 0xffff;
struct RowOf {
  std::uint16_t row, entry, label : 15, begins : 1, group;  // `begins`: as in StepLayout
};

// What flows into a cell, for who follows a path: slot i of its out has source `first_source` + i · source_stride, and
// entry `first_entry` + i · entry_stride of the matrix, both of the groups' or of the sparse outs'.
struct alignas(16) CellSlots {
  std::int32_t label, sparse, slots, first_source, source_stride, first_entry, entry_stride;
};

// From a slot of a thread to the next in StepLayout::gain_entry.
constexpr std::int32_t gain_row(std::int32_t tiles, std::int32_t lanes) { return kTile * tiles * lanes + 4; }

// A cell of a partition, in one number.
constexpr std::uint32_t kNoCell = 0xffffffff;
constexpr std::uint32_t partition_cell(std::int32_t partition, std::int32_t cell) {
  return static_cast<std::uint32_t>(partition) << 16 | static_cast<std::uint32_t>(cell);
}

// An out and where it goes: its label, two shared cells or kNoCell, and the others from `rest` on in a list, up to
// kNoCell.
struct alignas(16) PartitionedOut {
  std::int32_t label;
  std::uint32_t x, y;
  std::int32_t rest;  // -1: no others
};

struct Partitions {        // NOLINT(bugprone-reserved-identifier): a name of Clang's own, where it copies the arrays
  std::int32_t cells = 0;  // of a partition: 0 stays at the semiring's zero, copies, fan-ins; 0: no partitions
  std::vector<std::int32_t> copies;  // [kPartitions] how many
  std::vector<DenseGroup> groups;    // pieces of the layout's: states of one partition
  // As in the layout, in the numbers of the partition that has the state or out; but neighbouring states of a piece lie
  // side by side: its source = first_source + i · states + state, and its out = first_out + o · states + state.
  std::vector<Source> source, sparse_source;
  std::vector<PartitionedOut> outs;
  std::vector<std::int32_t> number;  // [outs] the layout's number
  std::vector<std::uint32_t> rest;
  std::vector<std::int32_t> fan_in_first{0};  // [kPartitions + 1] the fan-ins of each partition
  std::vector<std::int32_t> fan_in_begin{0};  // [fan-ins + 1]
  std::vector<std::int32_t> fan_in_source;
  std::vector<std::uint32_t> fan_in_cell;  // [fan-ins] a shared cell
  Schedule schedule[4];  // for clusters of 2, 4, 8, 16: `warps` for each block, one block after the other
};

// What is counted in a layout, here and on the device.
struct StepSizes {
  std::int32_t K = 0;
  std::int32_t outs = 0, cells = 0, fan_ins = 0;
  std::int32_t sparse = 0, first_sparse = 0, sparse_slots = 0;  // sparse outs, the first of them, slots of each
  std::int32_t kind = -1;                                       // of kRegisterTiles; -1: not in registers
  std::int32_t tensor_warps = 0;                                // 0: not with tensor cores
  std::int64_t cost = 0;  // of all units of the general schedule, about one for an instruction of a warp
  bool two = false;       // some slot has two sources

  constexpr std::int32_t zero() const { return cells; }         // the cell that stays at the semiring's zero
  constexpr std::int32_t scratch() const { return cells + 1; }  // if in registers: nobody reads what is stored here
  // Fan-ins and the scratch cell come after the zero.
  constexpr std::int32_t all_cells() const { return cells + 1 + fan_ins + (kind >= 0); }
};

struct StepLayout : StepSizes {
  std::vector<std::int32_t> label;   // [outs] K for padding
  std::vector<std::uint8_t> begins;  // [outs] where the direction's first step puts weight
  std::vector<std::int32_t> stored;  // [outs] → cell
  std::vector<std::int32_t> out;     // [nodes or arrivals] → out
  std::vector<CellSlots> slots_of;   // [cells] without slots where no out is stored
  std::int32_t cell(std::int32_t place) const { return stored[out[place]]; }

  std::vector<DenseGroup> groups;
  std::vector<Source> source;       // of the groups' slots
  std::vector<std::int32_t> entry;  // [entries] index into g [K, K], or -1

  std::vector<Source> sparse_source;       // [sparse_slots, sparse]
  std::vector<std::int32_t> sparse_entry;  // [sparse_slots, sparse] index into g, or -1

  std::vector<std::int32_t> fan_in_begin{0};  // [fan-ins + 1]
  std::vector<std::int32_t> fan_in_source;

  Schedule general;
  Schedule in_registers;      // a group's unit for each of the first warps
  std::vector<RowOf> row_of;  // [cells] if in registers
  // If in registers: a group's entries as its threads take them, four outs at a time, so that those of neighbours lie
  // side by side: [slots of a thread, halves of a tile, tiles, lanes, 4], -1 for padding, and some behind each slot so
  // that those of a column lie apart.
  std::vector<std::int32_t> gain_entry;
  std::vector<TensorUnit> tensor;  // for each of the first warps
  Partitions partitions;           // none if in registers, or small
};

// Both directions; both are in registers, in the same kind, or none is. `most_warps`: of the block that will run the
// general schedule.
struct StepLayouts {
  StepLayout forward, backward;
};
StepLayouts make_step_layouts(const Topology& topology, std::int32_t most_warps);

}  // namespace regccrf
