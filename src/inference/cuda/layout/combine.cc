// How two layouts are combined (see combine.h).
#include "inference/cuda/layout/combine.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace regccrf {

namespace {

// The warp tiles of a group, of which a state has `slots` places, from `first_place` on.
void add_warp_tiles(const DenseGroup& group, std::int32_t slots, std::int32_t first_place, CombineLayout& combine) {
  for (std::int32_t column = 0; column < group.width; column += kWarpTileColumns) {
    for (std::int32_t row = 0; row < group.slots; row += kWarpTileRows) {
      combine.warp_tiles.push_back({group.states, slots, group.width, std::min(kWarpTileRows, group.slots - row),
                                    std::min(kWarpTileColumns, group.width - column), first_place + row,
                                    group.first_out + column, group.first_entry + row * group.width + column});
    }
  }
}

// Places for a copied combine: an arrival's is its only source.
std::vector<std::int32_t> cells_as_places(const Topology& t, const StepLayout& forward, CombineLayout& combine) {
  std::vector<std::int32_t> place;
  for (std::int32_t m = 0; m < t.arrivals; ++m) place.push_back(forward.cell(t.into_node[t.into_begin[m]]));
  for (const DenseGroup& group : forward.groups) add_warp_tiles(group, group.stride, group.first_cell, combine);
  combine.places = forward.cells;
  return place;
}

// Places of their own: a group's slots are found from its matrix (row → label) and its states' arrivals; the rest come
// behind.
std::vector<std::int32_t> own_places(const Topology& t, const StepLayout& forward, CombineLayout& combine) {
  std::vector<std::int32_t> state_of(static_cast<std::size_t>(forward.outs), -1),
      place(static_cast<std::size_t>(t.arrivals), -1);
  for (std::int32_t n = 0; n < t.nodes; ++n) state_of[forward.out[n]] = t.node_state[n];
  for (const DenseGroup& group : forward.groups) {
    const std::int32_t slots = round_up(group.slots, 4);
    add_warp_tiles(group, slots, combine.places, combine);
    for (std::int32_t s = 0; s < group.states; ++s) {
      const auto row = state_of.begin() + group.first_out + s * group.width;
      const std::int32_t q = *std::find_if(row, row + group.width, [](std::int32_t state) { return state >= 0; });
      std::int32_t m = t.arrival_begin[q];
      for (std::int32_t i = 0; i < group.slots && m < t.arrival_begin[q + 1]; ++i) {
        const std::int32_t a = forward.entry[group.first_entry + i * group.width] / t.K;
        if (t.arrival_label[m] == a) place[m++] = combine.places + s * slots + i;
      }
    }
    combine.places += group.states * slots;
  }
  for (std::int32_t& p : place) {
    if (p < 0) p = combine.places++;
  }
  return place;
}

// Where alpha at each arrival is put.
std::vector<std::int32_t> number_places(const Topology& t, const StepLayout& forward, CombineLayout& combine) {
  combine.copied = forward.kind >= 0 && t.A == t.arrivals;  // an arrival has a source at least
  return combine.copied ? cells_as_places(t, forward, combine) : own_places(t, forward, combine);
}

void combine_outs(const Topology& t, const StepLayout& backward, const std::vector<std::int32_t>& node_of,
                  CombineLayout& combine) {
  for (const std::int32_t n : node_of) {
    const std::int32_t first = n < 0 ? 0 : t.from_begin[n], count = n < 0 ? 0 : t.from_begin[n + 1] - first;
    const auto cell = [&](std::int32_t i) {
      return i < count ? backward.cell(t.from_arrival[first + i]) : backward.zero();
    };
    combine.out.push_back({cell(0), cell(1)});
    combine.all_out = combine.all_out && count <= 2;
  }
  combine.no_out = static_cast<std::int32_t>(combine.out.size());
  combine.out.resize(combine.out.size() + kWarpTileColumns,
                     {backward.zero(), backward.zero()});  // a warp tile may read past the last out
}

// Where four numbers lie side by side, zeros among them as cells that hold nothing. `cell`: [4]; false: they do not.
bool side_by_side(const StepLayout& backward, const std::int32_t (&cell)[4], std::int32_t& first) {
  first = backward.zero();
  for (std::int32_t i = 0; i < 4; ++i) {
    if (cell[i] != backward.zero()) first = cell[i] - i;
  }
  if (first == backward.zero()) return true;
  if (first < 0 || first % 4 != 0 || first + 4 > backward.cells) return false;
  for (std::int32_t i = 0; i < 4; ++i) {
    const bool holds = backward.slots_of[first + i].slots > 0;
    if (cell[i] == backward.zero() ? holds : cell[i] != first + i) return false;
  }
  return true;
}

void find_quads(const StepLayout& forward, const StepLayout& backward, CombineLayout& combine) {
  combine.dense_outs = forward.first_sparse;
  if (backward.kind < 0 || !combine.all_out) return;
  for (std::int32_t o = 0; o < combine.dense_outs; o += 4) {
    std::int32_t x[4], y[4];
    for (std::int32_t i = 0; i < 4; ++i) {
      x[i] = combine.out[o + i].x;
      y[i] = combine.out[o + i].y;
    }
    Source quad{};
    if (!side_by_side(backward, x, quad.x) || !side_by_side(backward, y, quad.y)) return combine.quad.clear();
    combine.quad.push_back(quad);
  }
}

// Pairs with their keys.
struct KeyedPairs {
  std::vector<std::int32_t> key;
  std::vector<Source> pair;
  void add(std::int32_t of_key, Source of_pair) {
    key.push_back(of_key);
    pair.push_back(of_pair);
  }
};

// These in rounds, by keys below `keys`; a key's last round is padded.
PairRounds rounds_of(std::int32_t keys, const KeyedPairs& pairs, Source padding) {
  constexpr std::int32_t most = kMostHeight;
  const auto [begin, order] = sort_by_key(keys, pairs.key);
  PairRounds rounds;
  for (std::int32_t key = 0; key < keys; ++key)
    rounds.height =
        std::max(rounds.height, round_up(std::min(most, begin[key + 1] - begin[key]), kRoundSteps * kRoundLanes));
  for (std::int32_t key = 0; key < keys; ++key) {
    for (std::int32_t i = begin[key]; i < begin[key + 1]; ++i) {
      const std::int32_t n = (i - begin[key]) % most;
      if (n == 0) {
        rounds.key.push_back(key);
        rounds.pair.resize(rounds.pair.size() + static_cast<std::size_t>(rounds.height), padding);
      }
      rounds.pair[(rounds.rounds() - 1) * rounds.height + n] = pairs.pair[order[i]];
    }
    rounds.begin.push_back(rounds.rounds());
  }
  return rounds;
}

// Sparse states' bigrams, by (a, b).
void combine_pairs(const Topology& t, const StepLayout& forward, const std::vector<std::int32_t>& node_of,
                   CombineLayout& combine) {
  combine.dense = static_cast<std::int32_t>(forward.entry.size());
  KeyedPairs pairs;
  for (std::int32_t o = forward.first_sparse; o < forward.outs; ++o) {
    const std::int32_t n = node_of[o];
    if (n < 0) continue;  // padding
    for (std::int32_t m = t.arrival_begin[t.node_state[n]]; m < t.arrival_begin[t.node_state[n] + 1]; ++m)
      pairs.add(t.arrival_label[m] * t.K + t.node_label[n], {combine.place[m], o});
  }
  combine.sparse = rounds_of(t.K * t.K, pairs, {0, combine.no_out});
  std::vector<std::int32_t> bigram(forward.entry);
  bigram.insert(bigram.end(), combine.sparse.key.begin(), combine.sparse.key.end());
  combine.pair = sort_by_key(t.K * t.K, bigram);
}

void combine_labels(const Topology& t, const StepLayout& forward, const StepLayout& backward, CombineLayout& combine) {
  KeyedPairs arrivals, nodes;
  for (std::int32_t m = 0; m < t.arrivals; ++m) arrivals.add(t.arrival_label[m], {combine.place[m], backward.cell(m)});
  combine.arrivals = rounds_of(t.K, arrivals, {0, backward.zero()});
  if (!combine.copied) return;
  for (std::int32_t n = 0; n < t.nodes; ++n) nodes.add(t.node_label[n], {forward.cell(n), forward.out[n]});
  combine.nodes = rounds_of(t.K, nodes, {0, combine.no_out});
}

void combine_ends(const Topology& t, const StepLayout& forward, CombineLayout& combine) {
  std::vector<std::int32_t> label;
  for (std::int32_t n = 0; n < t.nodes; ++n) label.push_back(t.node_accepts[n] ? t.node_label[n] : -1);
  combine.end = sort_by_key(t.K, label);
  for (std::int32_t& node : combine.end.order) node = forward.cell(node);
}

}  // namespace

ByKey sort_by_key(std::int32_t keys, const std::vector<std::int32_t>& key_of) {
  ByKey sorted{std::vector<std::int32_t>(static_cast<std::size_t>(keys) + 1), {}};
  for (const std::int32_t key : key_of) {
    if (key >= 0) ++sorted.begin[static_cast<std::size_t>(key) + 1];
  }
  std::partial_sum(sorted.begin.begin(), sorted.begin.end(), sorted.begin.begin());
  sorted.order.resize(static_cast<std::size_t>(sorted.begin.back()));
  std::vector<std::int32_t> next(sorted.begin);
  for (std::size_t i = 0; i < key_of.size(); ++i) {
    if (key_of[i] >= 0) sorted.order[next[key_of[i]]++] = static_cast<std::int32_t>(i);
  }
  return sorted;
}

PairRounds bigram_rounds(const Topology& t) {
  KeyedPairs pairs;
  for (std::int32_t m = 0; m < t.arrivals; ++m) {
    for (std::int32_t n = t.node_begin[t.arrival_state[m]]; n < t.node_begin[t.arrival_state[m] + 1]; ++n)
      pairs.add(t.arrival_label[m] * t.K + t.node_label[n], {m, n});
  }
  return rounds_of(t.K * t.K, pairs, {-1, -1});
}

CombineLayout make_combine_layout(const Topology& t, const StepLayout& forward, const StepLayout& backward) {
  CombineLayout combine;
  std::vector<std::int32_t> node_of(static_cast<std::size_t>(forward.outs), -1);
  for (std::int32_t n = 0; n < t.nodes; ++n) node_of[forward.out[n]] = n;
  combine.place = number_places(t, forward, combine);
  combine_outs(t, backward, node_of, combine);
  find_quads(forward, backward, combine);
  combine.places = round_up(combine.places, 4);
  combine_pairs(t, forward, node_of, combine);
  combine_labels(t, forward, backward, combine);
  combine_ends(t, forward, combine);
  return combine;
}

}  // namespace regccrf
