// How a topology becomes sweeps (see sweep.h).
#include "inference/sweep.h"

#include <algorithm>
#include <map>
#include <numeric>

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

// States that share a matrix, with the labels of its rows and columns.
struct Draft {
  std::vector<std::int32_t> states, slot_labels, place_labels;  // labels ascend
  std::int64_t products = 0;                                    // without padding
};

constexpr double kMostPadding = 1.35;  // a group does at most so many times the products that its states need
constexpr std::size_t kCandidates = 64;

std::int32_t round_up(std::int32_t x, std::int32_t unit) { return (x + unit - 1) / unit * unit; }

std::vector<std::int32_t> merged(const std::vector<std::int32_t>& x, const std::int32_t* begin,
                                 const std::int32_t* end) {
  std::vector<std::int32_t> all;
  std::set_union(x.begin(), x.end(), begin, end, std::back_inserter(all));
  return all;
}

bool join_draft(Draft& draft, const Side& side, std::int32_t q) {
  const auto slots =
      merged(draft.slot_labels, side.slot_label + side.slot_begin[q], side.slot_label + side.slot_begin[q + 1]);
  const auto places =
      merged(draft.place_labels, side.place_label + side.place_begin[q], side.place_label + side.place_begin[q + 1]);
  const std::int64_t products = draft.products + std::int64_t{side.slots(q)} * side.width(q);
  const double padded = static_cast<double>(slots.size()) * static_cast<double>(places.size()) *
                        static_cast<double>(draft.states.size() + 1);
  if (padded > kMostPadding * static_cast<double>(products)) return false;
  draft.slot_labels = slots;
  draft.place_labels = places;
  draft.products = products;
  draft.states.push_back(q);
  return true;
}

std::vector<Draft> draft_groups(const Topology& topology, const Side& side) {
  std::vector<std::int32_t> thick;
  for (std::int32_t q = 0; q < topology.Q; ++q) {
    if (side.slots(q) > kThinSlots && side.width(q) > 0) thick.push_back(q);
  }
  std::stable_sort(thick.begin(), thick.end(), [&](std::int32_t p, std::int32_t q) {
    return std::int64_t{side.slots(p)} * side.width(p) > std::int64_t{side.slots(q)} * side.width(q);
  });
  std::vector<Draft> drafts;
  for (const std::int32_t q : thick) {
    const std::size_t oldest = drafts.size() > kCandidates ? drafts.size() - kCandidates : 0;
    std::size_t d = drafts.size();
    while (d > oldest && !join_draft(drafts[d - 1], side, q)) --d;
    if (d > oldest) continue;
    drafts.emplace_back();
    join_draft(drafts.back(), side, q);
  }
  return drafts;
}

class Builder {
 public:
  Builder(const Topology& topology, const Side& side) : topology_(topology), side_(side) {
    sweep_.K = topology.K;
    sweep_.cell.resize(static_cast<std::size_t>(side.places));
  }

  Sweep build(std::int32_t most_warps) {
    const std::vector<Draft> drafts = draft_groups(topology_, side_);
    std::vector<bool> grouped(static_cast<std::size_t>(topology_.Q));
    for (const Draft& draft : drafts) {
      for (std::int32_t q : draft.states) grouped[static_cast<std::size_t>(q)] = true;
      number_group(draft);
    }
    number_thin(grouped);
    sweep_.cells = static_cast<std::int32_t>(sweep_.label.size());
    for (const Draft& draft : drafts) fill_group(draft);
    fill_thin(grouped);
    for (Source *s = sweep_.source.data(), *end = s + sweep_.source.size(); s != end; ++s) note(*s);
    for (const Source& s : sweep_.thin_source) note(s);
    sweep_.extras = static_cast<std::int32_t>(sweep_.extra_begin.size()) - 1;
    begin_cells();
    make_schedules(most_warps);
    return std::move(sweep_);
  }

 private:
  void note(const Source& source) { sweep_.two = sweep_.two || source.y != sweep_.zero(); }

  std::int32_t entry(std::int32_t slot_label, std::int32_t place_label) const {
    return side_.forward ? slot_label * topology_.K + place_label : place_label * topology_.K + slot_label;
  }

  void number_group(const Draft& draft) {
    SweepGroup group{};
    group.states = static_cast<std::int32_t>(draft.states.size());
    group.slots = static_cast<std::int32_t>(draft.slot_labels.size());
    group.width = round_up(static_cast<std::int32_t>(draft.place_labels.size()), 4);
    group.tiles = (group.width + kTile - 1) / kTile;
    group.first_cell = static_cast<std::int32_t>(sweep_.label.size());
    group.first_entry = static_cast<std::int32_t>(sweep_.entry.size());
    for (const std::int32_t a : draft.slot_labels) {
      for (std::int32_t o = 0; o < group.width; ++o) {
        const bool real = o < static_cast<std::int32_t>(draft.place_labels.size());
        sweep_.entry.push_back(real ? entry(a, draft.place_labels[static_cast<std::size_t>(o)]) : -1);
      }
    }
    sweep_.label.resize(sweep_.label.size() + static_cast<std::size_t>(group.width) * draft.states.size(), topology_.K);
    for (std::int32_t state = 0; state < group.states; ++state) {
      const std::int32_t q = draft.states[static_cast<std::size_t>(state)];
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
        const auto o = static_cast<std::int32_t>(
            std::lower_bound(draft.place_labels.begin(), draft.place_labels.end(), side_.place_label[p]) -
            draft.place_labels.begin());
        const std::int32_t cell = group.first_cell + o * group.states + state;
        sweep_.cell[static_cast<std::size_t>(p)] = cell;
        sweep_.label[static_cast<std::size_t>(cell)] = side_.place_label[p];
      }
    }
    sweep_.groups.push_back(group);
  }

  void number_thin(const std::vector<bool>& grouped) {
    sweep_.first_thin = static_cast<std::int32_t>(sweep_.label.size());
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (grouped[static_cast<std::size_t>(q)]) continue;
      sweep_.thin_slots = std::max(sweep_.thin_slots, side_.width(q) > 0 ? side_.slots(q) : 0);
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
        sweep_.cell[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(sweep_.label.size());
        sweep_.label.push_back(side_.place_label[p]);
      }
    }
    while (sweep_.label.size() % 4 != 0) sweep_.label.push_back(topology_.K);  // steps are read four cells at a time
    sweep_.thin = static_cast<std::int32_t>(sweep_.label.size()) - sweep_.first_thin;
    if (sweep_.thin > 0) sweep_.thin_slots = std::max(sweep_.thin_slots, 1);
  }

  // The cells that flow into a slot: at most two by name, more as an extra.
  Source source(std::int32_t slot) {
    const std::int32_t first = side_.from_begin[slot], last = side_.from_begin[slot + 1];
    const auto cell = [&](std::int32_t i) { return sweep_.cell[static_cast<std::size_t>(side_.from_place[i])]; };
    if (last - first <= 2) {
      return {last > first ? cell(first) : sweep_.zero(), last > first + 1 ? cell(first + 1) : sweep_.zero()};
    }
    for (std::int32_t i = first; i < last; ++i) sweep_.extra_source.push_back(cell(i));
    sweep_.extra_begin.push_back(static_cast<std::int32_t>(sweep_.extra_source.size()));
    return {sweep_.zero() + static_cast<std::int32_t>(sweep_.extra_begin.size()) - 1, sweep_.zero()};
  }

  void fill_group(const Draft& draft) {
    SweepGroup& group = sweep_.groups[filled_++];
    group.first_source = static_cast<std::int32_t>(sweep_.source.size());
    sweep_.source.resize(sweep_.source.size() + draft.states.size() * draft.slot_labels.size(),
                         {sweep_.zero(), sweep_.zero()});
    for (std::size_t s = 0; s < draft.states.size(); ++s) {
      const std::int32_t q = draft.states[s];
      for (std::int32_t slot = side_.slot_begin[q]; slot < side_.slot_begin[q + 1]; ++slot) {
        const auto i = static_cast<std::size_t>(
            std::lower_bound(draft.slot_labels.begin(), draft.slot_labels.end(), side_.slot_label[slot]) -
            draft.slot_labels.begin());
        sweep_.source[static_cast<std::size_t>(group.first_source) + s * draft.slot_labels.size() + i] = source(slot);
      }
    }
  }

  void fill_thin(const std::vector<bool>& grouped) {
    const auto thin = static_cast<std::size_t>(sweep_.thin);
    sweep_.thin_source.assign(thin * static_cast<std::size_t>(sweep_.thin_slots), {sweep_.zero(), sweep_.zero()});
    sweep_.thin_entry.assign(thin * static_cast<std::size_t>(sweep_.thin_slots), -1);
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (grouped[static_cast<std::size_t>(q)] || side_.width(q) == 0) continue;
      for (std::int32_t i = 0; i < side_.slots(q); ++i) {
        const std::int32_t slot = side_.slot_begin[q] + i;
        const Source from = source(slot);
        for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
          const std::size_t at = static_cast<std::size_t>(i) * thin +
                                 static_cast<std::size_t>(sweep_.cell[static_cast<std::size_t>(p)] - sweep_.first_thin);
          sweep_.thin_source[at] = from;
          sweep_.thin_entry[at] = entry(side_.slot_label[slot], side_.place_label[p]);
        }
      }
    }
  }

  void begin_cells() {
    sweep_.begins.resize(static_cast<std::size_t>(sweep_.cells));
    for (std::int32_t q = 0; q < topology_.Q; ++q) {
      if (!(side_.forward ? q == topology_.start : topology_.accepting[q] != 0)) continue;
      for (std::int32_t p = side_.place_begin[q]; p < side_.place_begin[q + 1]; ++p) {
        sweep_.begins[static_cast<std::size_t>(sweep_.cell[static_cast<std::size_t>(p)])] = 1;
      }
    }
  }

  std::int64_t tiles() const {
    std::int64_t tiles = 0;
    for (const SweepGroup& group : sweep_.groups) tiles += std::int64_t{group.states} * group.tiles;
    return tiles;
  }

  // More lanes a tile where warps would idle.
  std::int32_t general_lanes(const SweepGroup& group, std::int32_t most_warps) const {
    std::int32_t lanes = 1;
    while (lanes < 8 && group.slots >= 6 * lanes && tiles() * lanes / 32 + sweep_.thin / 128 < most_warps) lanes *= 2;
    return lanes;
  }

  // The lanes that a tile needs for its slots to fit into registers; 0: more than there are.
  static std::int32_t resident_lanes(const SweepGroup& group) {
    std::int32_t lanes = 1;
    while (lanes < 8 && lanes * kResidentSlots < group.slots) lanes *= 2;
    return lanes * kResidentSlots < group.slots ? 0 : lanes;
  }

  // Units to warps, the longest first, each to the warp with the least to do.
  template <class Lanes>
  Schedule schedule(std::int32_t most_warps, const Lanes& lanes_of) const {
    struct Costed {
      Unit unit;
      std::int64_t cost;
    };
    std::vector<Costed> all;
    for (std::size_t g = 0; g < sweep_.groups.size(); ++g) {
      const SweepGroup& group = sweep_.groups[g];
      const std::int32_t lanes = lanes_of(group);
      for (std::int32_t first = 0; first < group.states * group.tiles; first += 32 / lanes) {
        all.push_back({{static_cast<std::int32_t>(g), first, lanes}, 60 + 14 * ((group.slots + lanes - 1) / lanes)});
      }
    }
    for (std::int32_t first = 0; first < sweep_.thin; first += 32)
      all.push_back({{-1, first, 1}, 20 + 6 * sweep_.thin_slots});
    std::stable_sort(all.begin(), all.end(), [](const Costed& x, const Costed& y) { return x.cost > y.cost; });
    Schedule schedule;
    schedule.warps =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(all.size()), 1, most_warps));
    std::vector<std::vector<Unit>> of(static_cast<std::size_t>(schedule.warps));
    std::multimap<std::int64_t, std::size_t> load;
    for (std::size_t w = 0; w < of.size(); ++w) load.emplace(0, w);
    for (const Costed& next : all) {
      const auto least = load.begin();
      const auto [cost, w] = *least;
      load.erase(least);
      of[w].push_back(next.unit);
      load.emplace(cost + next.cost, w);
    }
    schedule.begin = {0};
    for (const auto& units : of) {
      schedule.units.insert(schedule.units.end(), units.begin(), units.end());
      schedule.begin.push_back(static_cast<std::int32_t>(schedule.units.size()));
    }
    return schedule;
  }

  void make_schedules(std::int32_t most_warps) {
    sweep_.general = schedule(most_warps, [&](const SweepGroup& group) { return general_lanes(group, most_warps); });
    make_resident();
  }

  void make_resident() {
    Schedule& resident = sweep_.resident;
    for (std::size_t g = 0; g < sweep_.groups.size(); ++g) {
      const SweepGroup& group = sweep_.groups[g];
      const std::int32_t lanes = resident_lanes(group);
      if (lanes == 0) return resident.units.clear();
      for (std::int32_t first = 0; first < group.states * group.tiles; first += 32 / lanes) {
        resident.units.push_back({static_cast<std::int32_t>(g), first, lanes});
      }
    }
    const auto units = static_cast<std::int32_t>(resident.units.size());
    const std::int32_t warps = std::max({1, units, (sweep_.thin + 32 * kResidentThin - 1) / (32 * kResidentThin)});
    const std::int32_t terms = sweep_.thin_slots * (sweep_.two ? 2 : 1);
    if (warps > kResidentWarps || sweep_.extras > 0 || (sweep_.thin > 0 && terms > kResidentTerms) ||
        sweep_.cells > kResidentCells || sweep_.K > kResidentCells) {
      return resident.units.clear();
    }
    resident.warps = warps;
    for (std::int32_t w = 0; w <= warps; ++w) resident.begin.push_back(std::min(w, units));
  }

  const Topology& topology_;
  const Side& side_;
  Sweep sweep_;
  std::size_t filled_ = 0;
};

template <class Of>
void by_key(std::size_t keys, std::size_t items, const Of& key_of, std::vector<std::int32_t>& begin,
            std::vector<std::int32_t>& order) {
  begin.assign(keys + 1, 0);
  for (std::size_t i = 0; i < items; ++i) {
    if (key_of(i) >= 0) ++begin[static_cast<std::size_t>(key_of(i)) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  order.resize(static_cast<std::size_t>(begin.back()));
  std::vector<std::int32_t> at(begin.begin(), begin.end() - 1);
  for (std::size_t i = 0; i < items; ++i) {
    if (key_of(i) >= 0)
      order[static_cast<std::size_t>(at[static_cast<std::size_t>(key_of(i))]++)] = static_cast<std::int32_t>(i);
  }
}

}  // namespace

Sweep forward_sweep(const Topology& t, std::int32_t most_warps) {
  const Side side{t.arrival_begin, t.arrival_label, t.node_begin, t.node_label,
                  t.into_begin,    t.into_node,     t.nodes,      true};
  return Builder(t, side).build(most_warps);
}

Sweep backward_sweep(const Topology& t, std::int32_t most_warps) {
  const Side side{t.node_begin, t.node_label,   t.arrival_begin, t.arrival_label,
                  t.from_begin, t.from_arrival, t.arrivals,      false};
  return Builder(t, side).build(most_warps);
}

namespace {

// The first two of a list of cells, and the others behind `rest`.
template <class CellAt>
Source first_two(std::int32_t begin, std::int32_t end, std::int32_t zero, const CellAt& cell_at,
                 std::vector<std::int32_t>& rest) {
  for (std::int32_t i = begin + 2; i < end; ++i) rest.push_back(cell_at(i));
  return {begin < end ? cell_at(begin) : zero, begin + 1 < end ? cell_at(begin + 1) : zero};
}

}  // namespace

Join make_join(const Topology& t, const Sweep& forward, const Sweep& backward) {
  Join join;
  std::vector<std::int32_t> node_of(static_cast<std::size_t>(forward.cells), -1);
  for (std::int32_t n = 0; n < t.nodes; ++n)
    node_of[static_cast<std::size_t>(forward.cell[static_cast<std::size_t>(n)])] = n;

  // Places: a group's slots are found from its matrix (row → label) and its states' arrivals; the rest come behind.
  std::vector<std::int32_t> place(static_cast<std::size_t>(t.arrivals), -1);
  for (const SweepGroup& group : forward.groups) {
    for (std::int32_t s = 0; s < group.states; ++s) {
      std::int32_t q = -1;
      for (std::int32_t o = 0; o < group.width && q < 0; ++o) {
        const std::int32_t n = node_of[static_cast<std::size_t>(group.first_cell + o * group.states + s)];
        if (n >= 0) q = t.node_state[n];
      }
      std::int32_t m = t.arrival_begin[q];
      for (std::int32_t i = 0; i < group.slots && m < t.arrival_begin[q + 1]; ++i) {
        const std::int32_t a = forward.entry[static_cast<std::size_t>(group.first_entry + i * group.width)] / t.K;
        if (t.arrival_label[m] == a) place[static_cast<std::size_t>(m++)] = group.first_source + i * group.states + s;
      }
    }
  }
  join.places = static_cast<std::int32_t>(forward.source.size());
  for (std::int32_t& p : place) {
    if (p < 0) p = join.places++;
  }
  join.places = round_up(join.places, 4);

  std::vector<std::int32_t> order;
  by_key(
      static_cast<std::size_t>(t.K), static_cast<std::size_t>(t.arrivals),
      [&](std::size_t m) { return t.arrival_label[m]; }, join.label_begin, order);
  join.begin.push_back(0);
  for (const std::int32_t m : order) {
    join.cell.push_back(backward.cell[static_cast<std::size_t>(m)]);
    join.place.push_back(place[static_cast<std::size_t>(m)]);
    const auto cell_at = [&](std::int32_t i) { return forward.cell[static_cast<std::size_t>(t.into_node[i])]; };
    join.first.push_back(first_two(t.into_begin[m], t.into_begin[m + 1], forward.zero(), cell_at, join.source));
    join.begin.push_back(static_cast<std::int32_t>(join.source.size()));
  }
  join.node_begin.push_back(0);
  for (const std::int32_t n : node_of) {
    const auto cell_at = [&](std::int32_t i) { return backward.cell[static_cast<std::size_t>(t.from_arrival[i])]; };
    const std::int32_t begin = n < 0 ? 0 : t.from_begin[n], end = n < 0 ? 0 : t.from_begin[n + 1];
    join.node_first.push_back(first_two(begin, end, backward.zero(), cell_at, join.node_target));
    join.node_begin.push_back(static_cast<std::int32_t>(join.node_target.size()));
  }

  // Thin states' bigrams, by (a, b).
  join.dense = static_cast<std::int32_t>(forward.entry.size());
  std::map<std::int32_t, std::vector<Source>> sparse;
  for (std::int32_t c = forward.first_thin; c < forward.cells; ++c) {
    const std::int32_t n = node_of[static_cast<std::size_t>(c)];
    if (n < 0) continue;  // padding
    const std::int32_t q = t.node_state[n];
    for (std::int32_t m = t.arrival_begin[q]; m < t.arrival_begin[q + 1]; ++m) {
      sparse[t.arrival_label[m] * t.K + t.node_label[n]].push_back({place[static_cast<std::size_t>(m)], c});
    }
  }
  std::vector<std::int32_t> pair(forward.entry);
  join.sparse_begin.push_back(0);
  for (const auto& [ab, list] : sparse) {
    join.sparse.insert(join.sparse.end(), list.begin(), list.end());
    join.sparse_begin.push_back(static_cast<std::int32_t>(join.sparse.size()));
    pair.push_back(ab);
  }
  by_key(
      static_cast<std::size_t>(t.K) * static_cast<std::size_t>(t.K), pair.size(),
      [&](std::size_t e) { return pair[e]; }, join.pair_begin, join.pair_entry);
  return join;
}

}  // namespace regccrf
