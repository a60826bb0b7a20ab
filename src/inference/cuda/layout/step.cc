// How a topology becomes layouts (see step.h).
#include "inference/cuda/layout/step.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "constraint/groups.h"
#include "inference/cuda/layout/banks.h"

namespace regccrf {

namespace {

// One direction: slots (arrivals forwards, nodes backwards) take from places; places (nodes, arrivals) are what is
// computed.
struct Side {
  const std::int32_t *slot_begin, *slot_label;    // [Q+1], [slots]
  const std::int32_t *place_begin, *place_label;  // [Q+1], [places]
  const std::int32_t *from_begin, *from_place;    // [slots+1], [A] the places that flow into a slot
  std::int32_t places;
  bool forward;

  std::int32_t slots(std::int32_t q) const { return slot_begin[q + 1] - slot_begin[q]; }
  std::int32_t width(std::int32_t q) const { return place_begin[q + 1] - place_begin[q]; }
};

// A group of states, with the labels of its matrix's rows (slots) and columns (places) in one direction.
struct Draft {
  std::vector<std::int32_t> states, slot_labels, place_labels;  // labels ascend
};

constexpr GroupCost kGroupCost{.overhead = 32, .most_padding = 1.35};  // a group more is work for other warps

// The groups that are worth a dense product in this direction; the other states are done out by out.
std::vector<Draft> draft_groups(const Topology& topology, const Side& side) {
  std::vector<Draft> drafts;
  for (StateGroup& group : group_states(topology, kGroupCost)) {
    if (!side.forward) std::swap(group.in_labels, group.out_labels);
    if (group.in_labels.size() <= static_cast<std::size_t>(kSparseSlots) || group.out_labels.empty()) continue;
    drafts.push_back({std::move(group.states), std::move(group.in_labels), std::move(group.out_labels)});
  }
  return drafts;
}

std::int32_t index_of(const std::vector<std::int32_t>& labels, std::int32_t label) {
  return static_cast<std::int32_t>(std::lower_bound(labels.begin(), labels.end(), label) - labels.begin());
}

class Builder {
 public:
  Builder(const Topology& topology, const Side& side)
      : topology_(topology),
        side_(side),
        drafts_(draft_groups(topology, side)),
        grouped_(static_cast<std::size_t>(topology.Q)) {
    layout_.K = topology.K;
    layout_.out.resize(static_cast<std::size_t>(side.places));
    for (const Draft& draft : drafts_) {
      for (std::int32_t q : draft.states) grouped_[q] = true;
      number_group(draft);
    }
    number_sparse();
    layout_.outs = static_cast<std::int32_t>(layout_.label.size());
  }

  // Whether it can be in registers as a kind, by its size and by what its slots want.
  bool can_be(const RegisterTile& kind) const {
    std::int32_t warps = 1, cells = layout_.outs, gains = 0;
    for (const DenseGroup& group : layout_.groups) {
      const std::int32_t lanes = register_lanes(group, kind);
      if (lanes == 0) return false;
      warps += ceil_div(tiles_in_band(group, kind) * lanes, 32);
      cells += 2 * group.states * lanes * kind.slots;
      gains += gains_of(group, kind, lanes);
    }
    warps = std::max(warps - 1, sparse_warps());
    return warps <= kind.warps && cells <= kRegisterCells && layout_.K <= kRegisterCells && gains < 65536 &&
           sparse_terms() <= kSparseTerms && wanted_once();
  }

  // `kind`: of kRegisterTiles, or -1.
  StepLayout build(std::int32_t kind, std::int32_t most_warps) {
    layout_.kind = kind;
    if (kind >= 0) {
      make_register_schedule(kRegisterTiles[kind]);
      make_tensor();
      make_gains(kRegisterTiles[kind]);
    } else {
      layout_.stored.resize(static_cast<std::size_t>(layout_.outs));
      std::iota(layout_.stored.begin(), layout_.stored.end(), 0);
      layout_.cells = layout_.outs;
    }
    for (std::size_t g = 0; g < drafts_.size(); ++g) fill_group(drafts_[g], layout_.groups[g]);
    fill_sparse();
    if (kind >= 0) spread_sparse_over_banks();
    for (const Source& s : layout_.source) note(s);
    for (const Source& s : layout_.sparse_source) note(s);
    layout_.fan_ins = static_cast<std::int32_t>(layout_.fan_in_begin.size()) - 1;
    begin_outs();
    make_slots_of();
    if (kind >= 0) make_row_of(kRegisterTiles[kind]);
    make_general(most_warps);
    if (kind < 0 && topology_.products >= kClusterProducts) make_partitions();
    return std::move(layout_);
  }

 private:
  void note(const Source& source) { layout_.two = layout_.two || source.y != layout_.zero(); }

  std::int32_t entry(std::int32_t slot_label, std::int32_t place_label) const {
    return side_.forward ? slot_label * topology_.K + place_label : place_label * topology_.K + slot_label;
  }

  void number_group(const Draft& draft) {
    DenseGroup group{};
    group.states = static_cast<std::int32_t>(draft.states.size());
    group.slots = static_cast<std::int32_t>(draft.slot_labels.size());
    group.width = round_up(static_cast<std::int32_t>(draft.place_labels.size()), 4);
    group.tiles = ceil_div(group.width, kTile);
    group.first_out = static_cast<std::int32_t>(layout_.label.size());
    group.first_entry = static_cast<std::int32_t>(layout_.entry.size());
    for (const std::int32_t a : draft.slot_labels) {
      for (std::int32_t o = 0; o < group.width; ++o) {
        const bool real = o < static_cast<std::int32_t>(draft.place_labels.size());
        layout_.entry.push_back(real ? entry(a, draft.place_labels[o]) : -1);
      }
    }
    layout_.label.resize(layout_.label.size() + static_cast<std::size_t>(group.width) * draft.states.size(),
                         topology_.K);
    for (std::int32_t state = 0; state < group.states; ++state) {
      const std::int32_t q = draft.states[state];
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
        const std::int32_t out =
            group.first_out + state * group.width + index_of(draft.place_labels, side_.place_label[p]);
        layout_.out[p] = out;
        layout_.label[out] = side_.place_label[p];
      }
    }
    layout_.groups.push_back(group);
  }

  void number_sparse() {
    layout_.first_sparse = static_cast<std::int32_t>(layout_.label.size());
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (grouped_[q]) continue;
      layout_.sparse_slots = std::max(layout_.sparse_slots, side_.width(q) > 0 ? side_.slots(q) : 0);
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
        layout_.out[p] = static_cast<std::int32_t>(layout_.label.size());
        layout_.label.push_back(side_.place_label[p]);
      }
    }
    while (layout_.label.size() % 4 != 0) layout_.label.push_back(topology_.K);  // steps are read four cells at a time
    layout_.sparse = static_cast<std::int32_t>(layout_.label.size()) - layout_.first_sparse;
    if (layout_.sparse > 0) layout_.sparse_slots = std::max(layout_.sparse_slots, 1);
  }

  // The cells that flow into a slot: two at most, or a fan-in of more.
  Source source(std::int32_t slot) {
    const std::int32_t first = side_.from_begin[slot], last = side_.from_begin[slot + 1];
    const auto cell = [&](std::int32_t i) { return layout_.cell(side_.from_place[i]); };
    if (last - first <= 2) {
      return {last > first ? cell(first) : layout_.zero(), last > first + 1 ? cell(first + 1) : layout_.zero()};
    }
    for (std::int32_t i = first; i < last; ++i) layout_.fan_in_source.push_back(cell(i));
    layout_.fan_in_begin.push_back(static_cast<std::int32_t>(layout_.fan_in_source.size()));
    return {layout_.zero() + static_cast<std::int32_t>(layout_.fan_in_begin.size()) - 1, layout_.zero()};
  }

  void fill_group(const Draft& draft, DenseGroup& group) {
    group.first_source = static_cast<std::int32_t>(layout_.source.size());
    layout_.source.resize(layout_.source.size() + draft.states.size() * draft.slot_labels.size(),
                          {layout_.zero(), layout_.zero()});
    each_slot(draft, [&](std::int32_t state, std::int32_t i, std::int32_t slot) {
      layout_.source[group.first_source + state * group.slots + i] = source(slot);
    });
  }

  // act(state of the group, row of its matrix, slot)
  template <class Act>
  void each_slot(const Draft& draft, const Act& act) const {
    for (std::size_t s = 0; s < draft.states.size(); ++s) {
      const std::int32_t q = draft.states[s];
      for (std::int32_t slot = side_.slot_begin[q]; slot < side_.slot_begin[q + 1]; ++slot)
        act(static_cast<std::int32_t>(s), index_of(draft.slot_labels, side_.slot_label[slot]), slot);
    }
  }

  void fill_sparse() {
    const auto sparse = static_cast<std::size_t>(layout_.sparse);
    layout_.sparse_source.assign(sparse * static_cast<std::size_t>(layout_.sparse_slots),
                                 {layout_.zero(), layout_.zero()});
    layout_.sparse_entry.assign(sparse * static_cast<std::size_t>(layout_.sparse_slots), -1);
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (grouped_[q] || side_.width(q) == 0) continue;
      for (std::int32_t i = 0; i < side_.slots(q); ++i) {
        const std::int32_t slot = side_.slot_begin[q] + i;
        const Source from = source(slot);
        for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
          const std::size_t at =
              static_cast<std::size_t>(i) * sparse + static_cast<std::size_t>(layout_.out[p] - layout_.first_sparse);
          layout_.sparse_source[at] = from;
          layout_.sparse_entry[at] = entry(side_.slot_label[slot], side_.place_label[p]);
        }
      }
    }
  }

  void make_slots_of() {
    layout_.slots_of.resize(static_cast<std::size_t>(layout_.cells));
    const auto put = [&](std::int32_t out, CellSlots slots) {
      slots.label = layout_.label[out];
      if (slots.label != topology_.K) layout_.slots_of[layout_.stored[out]] = slots;
    };
    for (const DenseGroup& g : layout_.groups) {
      for (std::int32_t i = 0; i < g.states * g.width; ++i)
        put(g.first_out + i,
            {0, false, g.slots, g.first_source + i / g.width * g.slots, 1, g.first_entry + i % g.width, g.width});
    }
    for (std::int32_t i = 0; i < layout_.sparse; ++i)
      put(layout_.first_sparse + i, {0, true, layout_.sparse_slots, i, layout_.sparse, i, layout_.sparse});
  }

  void begin_outs() {
    layout_.begins.resize(static_cast<std::size_t>(layout_.outs));
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (!(side_.forward ? q == topology_.start : topology_.accepting[q] != 0)) continue;
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) layout_.begins[layout_.out[p]] = 1;
    }
  }

  // --- in registers

  // The lanes that a tile needs for its slots to fit into registers; 0: more than there are. Two at least, so that no
  // thread has more than half of a tile's outs.
  static std::int32_t register_lanes(const DenseGroup& group, const RegisterTile& kind) {
    std::int32_t lanes = 2;
    while (lanes < 16 && lanes * kind.slots < group.slots) lanes *= 2;
    return lanes * kind.slots < group.slots ? 0 : lanes;
  }
  static std::int32_t band_of(const DenseGroup& group, const RegisterTile& kind) {
    return ceil_div(group.states, kind.repeats);
  }
  static std::int32_t tiles_in_band(const DenseGroup& group, const RegisterTile& kind) {
    return band_of(group, kind) * group.tiles;
  }

  // The warps that sparse outs take in registers.
  std::int32_t sparse_warps() const { return ceil_div(layout_.sparse, 32 * kSparsePerThread); }

  // The products of a sparse out.
  std::int32_t sparse_terms() const {
    std::int32_t most = 0;
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (grouped_[q] || side_.width(q) == 0) continue;
      for (std::int32_t slot = side_.slot_begin[q]; slot < side_.slot_begin[q + 1]; ++slot)
        most = std::max(most, side_.from_begin[slot + 1] - side_.from_begin[slot]);
    }
    return layout_.sparse > 0 ? most * layout_.sparse_slots : 0;
  }

  // Every slot of a group has two sources at most, and no out is a source of two such slots.
  bool wanted_once() const {
    std::vector<bool> wanted(layout_.out.size());
    bool once = true;
    for (const Draft& draft : drafts_) {
      each_slot(draft, [&](std::int32_t, std::int32_t, std::int32_t slot) {
        const std::int32_t first = side_.from_begin[slot], last = side_.from_begin[slot + 1];
        once = once && last - first <= 2;
        for (std::int32_t i = first; i < last && once; ++i) {
          const auto place = static_cast<std::size_t>(side_.from_place[i]);
          once = !wanted[place];
          wanted[place] = true;
        }
      });
    }
    return once;
  }

  // Cells by the slots that want them, and a unit for each warp.
  void make_register_schedule(const RegisterTile& kind) {
    std::int32_t cells = 0;
    layout_.stored.assign(static_cast<std::size_t>(layout_.outs), -1);
    const auto store = [&](std::int32_t place, std::int32_t cell) { layout_.stored[layout_.out[place]] = cell; };
    for (std::size_t g = 0; g < drafts_.size(); ++g) {
      DenseGroup& group = layout_.groups[g];
      const std::int32_t lanes = register_lanes(group, kind);
      group.stride = lanes * kind.slots;
      group.band = band_of(group, kind);
      group.first_cell = cells;
      group.planes = 1;
      each_slot(drafts_[g], [&](std::int32_t state, std::int32_t i, std::int32_t slot) {
        const std::int32_t first = side_.from_begin[slot], count = side_.from_begin[slot + 1] - first;
        group.planes = std::max(group.planes, count);
        for (std::int32_t n = 0; n < count; ++n)
          store(side_.from_place[first + n], group.first_cell + (n * group.states + state) * group.stride + i);
      });
      cells += group.planes * group.states * group.stride;
      for (std::int32_t tile = 0; tile < tiles_in_band(group, kind); tile += 32 / lanes)
        layout_.in_registers.units.push_back({static_cast<std::int32_t>(g), tile, lanes});
    }
    for (const std::int32_t out : layout_.out) {
      if (layout_.stored[out] < 0) layout_.stored[out] = cells++;
    }
    layout_.cells = round_up(cells, 4);
    for (std::int32_t& cell : layout_.stored) {
      if (cell < 0) cell = layout_.scratch();
    }
    const auto units = static_cast<std::int32_t>(layout_.in_registers.units.size());
    layout_.in_registers.warps = std::max({1, units, sparse_warps()});
  }

  // Sparse outs in an order in which the lanes of a warp find their weights, cells and sources in different banks.
  void spread_sparse_over_banks() {
    std::vector<BankAddresses> addresses;
    for (std::int32_t i = 0; i < layout_.sparse; ++i) {
      const std::int32_t out = layout_.first_sparse + i;
      const Source first = layout_.sparse_source[i];
      const std::int32_t second =
          layout_.sparse_slots > 1 ? layout_.sparse_source[static_cast<std::size_t>(layout_.sparse) + i].x : first.y;
      addresses.push_back({layout_.label[out], layout_.stored[out], first.x, second});
    }
    renumber_sparse(spread_over_banks(addresses));
  }

  // Out order[i] becomes the i-th.
  void renumber_sparse(const std::vector<std::size_t>& order) {
    const auto first = static_cast<std::size_t>(layout_.first_sparse);
    std::vector<std::int32_t> number(layout_.label.size());
    std::iota(number.begin(), number.end(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) number[first + order[i]] = static_cast<std::int32_t>(first + i);
    for (std::int32_t& out : layout_.out) out = number[out];
    const auto permute = [&](auto& numbers, std::size_t begin) {
      const auto before = numbers;
      for (std::size_t i = 0; i < order.size(); ++i) numbers[begin + i] = before[begin + order[i]];
    };
    permute(layout_.label, first);
    permute(layout_.stored, first);
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(layout_.sparse_slots); ++slot) {
      permute(layout_.sparse_source, slot * order.size());
      permute(layout_.sparse_entry, slot * order.size());
    }
  }

  // From a group's first gain to that of an out's first slot, and from there to another slot's.
  static std::int32_t gain_of_out(const DenseGroup& group, const RegisterTile& kind, std::int32_t o) {
    const std::int32_t lanes = group.stride / kind.slots;
    return (o % kTile / 4 * group.tiles + o / kTile) * lanes * 4 + o % 4;
  }
  static std::int32_t gain_of_slot(const DenseGroup& group, const RegisterTile& kind, std::int32_t i) {
    return i % kind.slots * gain_row(group.tiles, group.stride / kind.slots) + i / kind.slots * 4;
  }
  static std::int32_t gains_of(const DenseGroup& group, const RegisterTile& kind, std::int32_t lanes) {
    return kind.slots * gain_row(group.tiles, lanes);
  }

  void make_gains(const RegisterTile& kind) {
    for (DenseGroup& group : layout_.groups) {
      group.first_gain = static_cast<std::int32_t>(layout_.gain_entry.size());
      layout_.gain_entry.resize(
          layout_.gain_entry.size() + static_cast<std::size_t>(gains_of(group, kind, group.stride / kind.slots)), -1);
      for (std::int32_t i = 0; i < group.slots; ++i) {
        for (std::int32_t o = 0; o < group.width; ++o) {
          const std::int32_t at = group.first_gain + gain_of_slot(group, kind, i) + gain_of_out(group, kind, o);
          layout_.gain_entry[at] = layout_.entry[group.first_entry + i * group.width + o];
        }
      }
    }
  }

  void make_row_of(const RegisterTile& kind) {
    layout_.row_of.assign(static_cast<std::size_t>(layout_.cells), {0, 0, 0, 0, kSparseGroup});
    const auto put = [&](std::int32_t out, std::int32_t row, std::int32_t entry, std::size_t group) {
      const std::int32_t label = layout_.label[out];
      if (label == topology_.K) return;
      layout_.row_of[layout_.stored[out]] = {static_cast<std::uint16_t>(row), static_cast<std::uint16_t>(entry),
                                             static_cast<std::uint16_t>(label & 0x7fff), layout_.begins[out],
                                             static_cast<std::uint16_t>(group)};
    };
    for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
      const DenseGroup& group = layout_.groups[g];
      for (std::int32_t i = 0; i < group.states * group.width; ++i)
        put(group.first_out + i, group.first_cell + i / group.width * group.stride,
            group.first_gain + gain_of_out(group, kind, i % group.width), g);
    }
    for (std::int32_t i = 0; i < layout_.sparse; ++i) put(layout_.first_sparse + i, 0, i, kSparseGroup);
  }

  std::vector<TensorUnit> tensor_units(std::int32_t tiles, std::int32_t columns) const {
    std::vector<TensorUnit> units;
    for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
      const DenseGroup& group = layout_.groups[g];
      for (std::int32_t state = 0; state < group.states; state += 8 * tiles) {
        for (std::int32_t out = 0; out < group.width; out += 8 * columns)
          units.push_back({static_cast<std::int32_t>(g), state, out, tiles, columns});
      }
    }
    return units;
  }

  // The smallest units that are no more than there are warps.
  void make_tensor() {
    for (const DenseGroup& group : layout_.groups) {
      if (group.slots > kTensorSlots) return;
    }
    constexpr std::pair<std::int32_t, std::int32_t> shapes[] = {{1, 1}, {1, 2}, {2, 2}};
    for (const auto& [tiles, columns] : shapes) {
      layout_.tensor = tensor_units(tiles, columns);
      if (layout_.tensor.size() <= static_cast<std::size_t>(kTensorWarps)) break;
    }
    const std::int32_t warps = std::max({1, static_cast<std::int32_t>(layout_.tensor.size()), sparse_warps()});
    if (warps > kTensorWarps) return layout_.tensor.clear();
    layout_.tensor_warps = warps;
  }

  // --- the general schedule

  std::int64_t tiles() const {
    std::int64_t tiles = 0;
    for (const DenseGroup& group : layout_.groups) tiles += std::int64_t{group.states} * group.tiles;
    return tiles;
  }

  // More lanes a tile where there would be too few units of tiles.
  std::int32_t general_lanes(const DenseGroup& group, std::int32_t wanted) const {
    std::int32_t lanes = 1;
    while (lanes < 8 && group.slots >= 6 * lanes && tiles() * lanes / 32 < wanted) lanes *= 2;
    return lanes;
  }

  struct Costed {
    Unit unit;
    std::int64_t cost;
  };
  // All units. `wanted`: how many of tiles there should be at least.
  std::vector<Costed> units_of(const std::vector<DenseGroup>& groups, std::int32_t wanted) const {
    std::vector<Costed> units;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const DenseGroup& group = groups[g];
      const std::int32_t lanes = general_lanes(group, wanted);
      for (std::int32_t first = 0; first < group.states * group.tiles; first += 32 / lanes) {
        units.push_back({{static_cast<std::int32_t>(g), first, lanes}, 60 + 14 * ceil_div(group.slots, lanes)});
      }
    }
    for (std::int32_t first = 0; first < layout_.sparse; first += 32)
      units.push_back({{-1, first, 1}, 30 + 10 * layout_.sparse_slots});
    return units;
  }

  // Appends units for `warps` warps, the longest first, each to the warp with the least to do.
  static void balance(std::vector<Costed> units, std::int32_t warps, Schedule& schedule) {
    std::stable_sort(units.begin(), units.end(), [](const Costed& x, const Costed& y) { return x.cost > y.cost; });
    std::vector<std::vector<Unit>> of(static_cast<std::size_t>(warps));
    std::multimap<std::int64_t, std::size_t> load;
    for (std::size_t w = 0; w < of.size(); ++w) load.emplace(0, w);
    for (const Costed& next : units) {
      const auto least = load.begin();
      const auto [cost, w] = *least;
      load.erase(least);
      of[w].push_back(next.unit);
      load.emplace(cost + next.cost, w);
    }
    for (const auto& own : of) {
      schedule.units.insert(schedule.units.end(), own.begin(), own.end());
      schedule.begin.push_back(static_cast<std::int32_t>(schedule.units.size()));
    }
  }

  void make_general(std::int32_t most_warps) {
    const std::vector<Costed> units = units_of(layout_.groups, most_warps - layout_.sparse / 128);
    for (const Costed& unit : units) layout_.cost += unit.cost;
    Schedule& schedule = layout_.general;
    schedule.warps =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(units.size()), 1, most_warps));
    balance(units, schedule.warps, schedule);
  }

  // --- partitions

  // Which partition has 32 neighbouring sparse outs, and which each piece of a group: as much work for each.
  std::int32_t partition_of_sparse(std::int32_t i) const {
    return static_cast<std::int32_t>(std::int64_t{i / 32} * kPartitions / ceil_div(layout_.sparse, 32));
  }
  std::vector<std::int32_t> cut_groups() {
    Partitions& partitions = layout_.partitions;
    std::vector<std::int32_t> partition_of;
    std::int64_t all = 0, done = 0;
    const auto cost = [](const DenseGroup& group) { return std::int64_t{group.tiles} * (4 + group.slots); };
    for (const DenseGroup& group : layout_.groups) all += group.states * cost(group);
    for (const DenseGroup& group : layout_.groups) {
      for (std::int32_t state = 0; state < group.states; ++state) {
        const auto partition = static_cast<std::int32_t>(done * kPartitions / all);
        done += cost(group);
        if (state > 0 && partition_of.back() == partition) {
          ++partitions.groups.back().states;
          continue;
        }
        DenseGroup piece = group;
        piece.states = 1;
        piece.first_out += state * group.width;
        piece.first_source += state * group.slots;
        partitions.groups.push_back(piece);
        partition_of.push_back(partition);
      }
    }
    return partition_of;
  }

  // act(slot's source in the layout, in the partitions) for the slots of one partition.
  template <class Act>
  void each_source(const std::vector<std::int32_t>& partition_of, std::int32_t partition, const Act& act) {
    Partitions& partitions = layout_.partitions;
    for (std::size_t g = 0; g < partitions.groups.size(); ++g) {
      const DenseGroup& piece = partitions.groups[g];
      if (partition_of[g] != partition) continue;
      for (std::int32_t state = 0; state < piece.states; ++state) {
        for (std::int32_t i = 0; i < piece.slots; ++i)
          act(layout_.source[piece.first_source + state * piece.slots + i],
              partitions.source[piece.first_source + i * piece.states + state]);
      }
    }
    for (std::int32_t i = 0; i < layout_.sparse; ++i) {
      if (partition_of_sparse(i) != partition) continue;
      for (std::int32_t s = 0; s < layout_.sparse_slots; ++s) {
        const auto at = static_cast<std::size_t>(s) * layout_.sparse + i;
        act(layout_.sparse_source[at], partitions.sparse_source[at]);
      }
    }
  }

  // Numbers the cells that the slots of a partition read; `to`: where each out is sent.
  void number_copies(const std::vector<std::int32_t>& partition_of, std::int32_t partition,
                     std::vector<std::vector<std::uint32_t>>& to) {
    Partitions& partitions = layout_.partitions;
    std::vector<std::int32_t> cells, fan_ins;
    const auto want = [&](std::int32_t cell) {
      if (cell > layout_.zero()) fan_ins.push_back(cell - layout_.zero() - 1);
      if (cell < layout_.zero()) cells.push_back(cell);
    };
    const auto sort = [](std::vector<std::int32_t>& numbers) {
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    };
    each_source(partition_of, partition, [&](const Source& from, const Source&) {
      want(from.x);
      want(from.y);
    });
    sort(fan_ins);
    const auto fan_in_sources = [&](std::int32_t fan_in, const auto& act) {
      for (std::int32_t j = layout_.fan_in_begin[fan_in];
           j < layout_.fan_in_begin[static_cast<std::size_t>(fan_in) + 1]; ++j)
        act(layout_.fan_in_source[j]);
    };
    for (const std::int32_t fan_in : fan_ins) fan_in_sources(fan_in, [&](std::int32_t cell) { cells.push_back(cell); });
    sort(cells);
    const auto count = static_cast<std::int32_t>(cells.size());
    const auto number = [&](std::int32_t cell) {
      if (cell == layout_.zero()) return 0;
      if (cell < layout_.zero()) return 1 + index_of(cells, cell);
      return 1 + count + index_of(fan_ins, cell - layout_.zero() - 1);
    };
    for (const std::int32_t cell : cells) to[cell].push_back(partition_cell(partition, number(cell)));
    each_source(partition_of, partition, [&](const Source& from, Source& here) {
      here = {number(from.x), number(from.y)};
    });
    for (const std::int32_t fan_in : fan_ins) {
      fan_in_sources(fan_in, [&](std::int32_t cell) { partitions.fan_in_source.push_back(number(cell)); });
      partitions.fan_in_begin.push_back(static_cast<std::int32_t>(partitions.fan_in_source.size()));
      partitions.fan_in_cell.push_back(partition_cell(partition, number(layout_.zero() + 1 + fan_in)));
    }
    partitions.fan_in_first.push_back(static_cast<std::int32_t>(partitions.fan_in_begin.size()) - 1);
    partitions.copies.push_back(count);
    partitions.cells = std::max(partitions.cells, round_up(1 + count + static_cast<std::int32_t>(fan_ins.size()), 4));
  }

  // A cell is its out here, since nothing is in registers.
  void make_partitions() {
    Partitions& partitions = layout_.partitions;
    const std::vector<std::int32_t> partition_of = cut_groups();
    partitions.source.resize(layout_.source.size());
    partitions.sparse_source.resize(layout_.sparse_source.size());
    std::vector<std::vector<std::uint32_t>> to(static_cast<std::size_t>(layout_.outs));
    for (std::int32_t partition = 0; partition < kPartitions; ++partition) number_copies(partition_of, partition, to);
    if (partitions.cells > 65536) {  // more than 16 bits count
      partitions = {};
      return;
    }
    partitions.number.resize(to.size());
    std::iota(partitions.number.begin(), partitions.number.end(), 0);
    for (const DenseGroup& piece : partitions.groups) {
      for (std::int32_t i = 0; i < piece.states * piece.width; ++i)
        partitions.number[piece.first_out + i] = piece.first_out + i % piece.states * piece.width + i / piece.states;
    }
    for (const std::int32_t number : partitions.number) {
      const std::vector<std::uint32_t>& cells = to[number];
      PartitionedOut out{layout_.label[number], kNoCell, kNoCell, -1};
      if (!cells.empty()) out.x = cells[0];
      if (cells.size() > 1) out.y = cells[1];
      if (cells.size() > 2) {
        out.rest = static_cast<std::int32_t>(partitions.rest.size());
        partitions.rest.insert(partitions.rest.end(), cells.begin() + 2, cells.end());
        partitions.rest.push_back(kNoCell);
      }
      partitions.outs.push_back(out);
    }
    for (std::int32_t k = 0; k < 4; ++k) {
      const std::int32_t blocks = 2 << k;
      std::vector<std::vector<Costed>> of_block(static_cast<std::size_t>(blocks));
      // Few lanes a tile, so that the threads of a warp read the same entries of a matrix.
      for (Costed& next : units_of(partitions.groups, 6 * blocks)) {
        Unit& unit = next.unit;
        unit.partition = unit.group < 0 ? partition_of_sparse(unit.first) : partition_of[unit.group];
        of_block[unit.partition * blocks / kPartitions].push_back(next);
      }
      Schedule& schedule = partitions.schedule[k];
      std::size_t most = 1;
      for (const auto& units : of_block) most = std::max(most, units.size());
      schedule.warps = static_cast<std::int32_t>(std::min(most, static_cast<std::size_t>(kClusterWarps)));
      for (const auto& units : of_block) balance(units, schedule.warps, schedule);
    }
  }

  const Topology& topology_;
  const Side& side_;
  std::vector<Draft> drafts_;
  std::vector<bool> grouped_;
  StepLayout layout_;
};

}  // namespace

StepLayouts make_step_layouts(const Topology& t, std::int32_t most_warps) {
  const Side ahead{t.arrival_begin, t.arrival_label, t.node_begin, t.node_label,
                   t.into_begin,    t.into_node,     t.nodes,      true};
  const Side back{t.node_begin, t.node_label,   t.arrival_begin, t.arrival_label,
                  t.from_begin, t.from_arrival, t.arrivals,      false};
  Builder forward(t, ahead), backward(t, back);
  std::int32_t kind = 0;
  const auto kinds = static_cast<std::int32_t>(std::size(kRegisterTiles));
  while (kind < kinds && !(forward.can_be(kRegisterTiles[kind]) && backward.can_be(kRegisterTiles[kind]))) ++kind;
  if (kind == kinds) kind = -1;
  return {forward.build(kind, most_warps), backward.build(kind, most_warps)};
}

}  // namespace regccrf
