// How two sweeps are joined (see combine.h).
#include "inference/cuda/layout/combine.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace regccrf {

namespace {

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

// The first two of a list of cells, and the others behind `rest`.
template <class CellAt>
Source first_two(std::int32_t begin, std::int32_t end, std::int32_t zero, const CellAt& cell_at,
                 std::vector<std::int32_t>& rest) {
  for (std::int32_t i = begin + 2; i < end; ++i) rest.push_back(cell_at(i));
  return {begin < end ? cell_at(begin) : zero, begin + 1 < end ? cell_at(begin + 1) : zero};
}

// Places for a copied join: an arrival's is its only source.
std::vector<std::int32_t> cells_as_places(const Topology& t, const Sweep& forward, Join& join) {
  std::vector<std::int32_t> place;
  for (std::int32_t m = 0; m < t.arrivals; ++m) place.push_back(forward.cell(t.into_node[t.into_begin[m]]));
  for (const SweepGroup& group : forward.groups) {
    join.groups.push_back(
        {group.states, group.stride, group.width, group.first_cell, group.first_out, group.first_entry, group.slots});
  }
  join.places = forward.cells;
  return place;
}

// Places of their own: a group's slots are found from its matrix (row → label) and its states' arrivals; the rest come
// behind.
std::vector<std::int32_t> own_places(const Topology& t, const Sweep& forward, Join& join) {
  std::vector<std::int32_t> state_of(static_cast<std::size_t>(forward.outs), -1),
      place(static_cast<std::size_t>(t.arrivals), -1);
  for (std::int32_t n = 0; n < t.nodes; ++n)
    state_of[static_cast<std::size_t>(forward.out[static_cast<std::size_t>(n)])] = t.node_state[n];
  for (const SweepGroup& group : forward.groups) {
    const std::int32_t slots = round_up(group.slots, 4);
    join.groups.push_back(
        {group.states, slots, group.width, join.places, group.first_out, group.first_entry, group.slots});
    for (std::int32_t s = 0; s < group.states; ++s) {
      const auto row = state_of.begin() + group.first_out + s * group.width;
      const std::int32_t q = *std::find_if(row, row + group.width, [](std::int32_t state) { return state >= 0; });
      std::int32_t m = t.arrival_begin[q];
      for (std::int32_t i = 0; i < group.slots && m < t.arrival_begin[q + 1]; ++i) {
        const std::int32_t a = forward.entry[static_cast<std::size_t>(group.first_entry + i * group.width)] / t.K;
        if (t.arrival_label[m] == a) place[static_cast<std::size_t>(m++)] = join.places + s * slots + i;
      }
    }
    join.places += group.states * slots;
  }
  for (std::int32_t& p : place) {
    if (p < 0) p = join.places++;
  }
  return place;
}

// Where alpha at each arrival is put.
std::vector<std::int32_t> number_places(const Topology& t, const Sweep& forward, Join& join) {
  join.copied = forward.kind >= 0 && t.A == t.arrivals;  // an arrival has a source at least
  return join.copied ? cells_as_places(t, forward, join) : own_places(t, forward, join);
}

void join_arrivals(const Topology& t, const Sweep& forward, const Sweep& backward,
                   const std::vector<std::int32_t>& place, Join& join) {
  std::vector<std::int32_t> begin, order;
  by_key(
      static_cast<std::size_t>(t.K), static_cast<std::size_t>(t.arrivals),
      [&](std::size_t m) { return t.arrival_label[m]; }, begin, order);
  const auto cell_at = [&](std::int32_t i) { return forward.cell(t.into_node[i]); };
  join.round_begin = {0};
  join.arrival_begin = {0};
  for (std::size_t a = 0; a + 1 < begin.size(); ++a) {
    for (std::int32_t k = begin[a]; k < begin[a + 1]; ++k) {
      const std::int32_t m = order[static_cast<std::size_t>(k)];
      const Source first =
          first_two(t.into_begin[m], t.into_begin[m + 1], forward.zero(), cell_at, join.arrival_source);
      join.arrival.push_back({first.x, first.y, backward.cell(m), place[static_cast<std::size_t>(m)]});
      join.arrival_begin.push_back(static_cast<std::int32_t>(join.arrival_source.size()));
    }
    while (join.arrival.size() % 32 != 0) {
      join.arrival.push_back({forward.zero(), forward.zero(), backward.zero(), 0});
      join.arrival_begin.push_back(join.arrival_begin.back());
    }
    join.round_begin.push_back(static_cast<std::int32_t>(join.arrival.size() / 32));
  }
  if (join.arrival_source.empty()) join.arrival_begin.clear();
}

void join_outs(const Topology& t, const Sweep& forward, const Sweep& backward, const std::vector<std::int32_t>& node_of,
               Join& join) {
  const auto cell_at = [&](std::int32_t i) { return backward.cell(t.from_arrival[i]); };
  join.out_begin = {0};
  for (std::size_t o = 0; o < node_of.size(); ++o) {
    const std::int32_t n = node_of[o];
    const Source first = first_two(n < 0 ? 0 : t.from_begin[n], n < 0 ? 0 : t.from_begin[n + 1], backward.zero(),
                                   cell_at, join.out_target);
    join.out.push_back({first.x, first.y, forward.label[o]});
    join.out_begin.push_back(static_cast<std::int32_t>(join.out_target.size()));
  }
  join.no_out = static_cast<std::int32_t>(join.out.size());
  for (std::int32_t i = 0; i < kPatchColumns; ++i) {  // a patch may read past the last out
    join.out.push_back({backward.zero(), backward.zero(), t.K});
    join.out_begin.push_back(join.out_begin.back());
  }
  if (join.out_target.empty()) join.out_begin.clear();
}

// Where four numbers lie side by side, zeros among them as cells that hold nothing. `cell`: [4]; false: they do not.
bool side_by_side(const Sweep& backward, const std::int32_t (&cell)[4], std::int32_t& first) {
  first = backward.zero();
  for (std::int32_t i = 0; i < 4; ++i) {
    if (cell[i] != backward.zero()) first = cell[i] - i;
  }
  if (first == backward.zero()) return true;
  if (first < 0 || first % 4 != 0 || first + 4 > backward.cells) return false;
  for (std::int32_t i = 0; i < 4; ++i) {
    const bool holds = backward.out_of[static_cast<std::size_t>(first + i)] >= 0;
    if (cell[i] == backward.zero() ? holds : cell[i] != first + i) return false;
  }
  return true;
}

void find_quads(const Sweep& forward, const Sweep& backward, Join& join) {
  join.dense_outs = forward.first_thin;
  if (backward.kind < 0 || !join.out_begin.empty()) return;
  for (std::int32_t o = 0; o < join.dense_outs; o += 4) {
    std::int32_t x[4], y[4];
    for (std::int32_t i = 0; i < 4; ++i) {
      x[i] = join.out[static_cast<std::size_t>(o + i)].x;
      y[i] = join.out[static_cast<std::size_t>(o + i)].y;
    }
    Source quad{};
    if (!side_by_side(backward, x, quad.x) || !side_by_side(backward, y, quad.y)) return join.quad.clear();
    join.quad.push_back(quad);
  }
}

// Pairs, by keys below `keys`, in the order of what pair_of(thing) stands for; then padding.
template <class KeyOf, class PairOf>
JoinRounds rounds_of(std::size_t keys, std::size_t count, Source padding, const KeyOf& key_of, const PairOf& pair_of) {
  constexpr std::int32_t most = kMostHeight;
  std::vector<std::int32_t> begin, order;
  by_key(keys, count, key_of, begin, order);
  JoinRounds rounds;
  for (std::size_t key = 0; key < keys; ++key)
    rounds.height =
        std::max(rounds.height, round_up(std::min(most, begin[key + 1] - begin[key]), kRoundSteps * kRoundLanes));
  for (std::size_t key = 0; key < keys; ++key) {
    for (std::int32_t i = begin[key]; i < begin[key + 1]; ++i) {
      const std::int32_t n = (i - begin[key]) % most;
      if (n == 0) {
        rounds.key.push_back(static_cast<std::int32_t>(key));
        rounds.pair.resize(rounds.pair.size() + static_cast<std::size_t>(rounds.height), padding);
      }
      rounds.pair[static_cast<std::size_t>((rounds.rounds() - 1) * rounds.height + n)] =
          pair_of(static_cast<std::size_t>(order[static_cast<std::size_t>(i)]));
    }
    rounds.begin.push_back(rounds.rounds());
  }
  return rounds;
}

// Thin states' bigrams, by (a, b).
void join_pairs(const Topology& t, const Sweep& forward, const std::vector<std::int32_t>& node_of,
                const std::vector<std::int32_t>& place, Join& join) {
  join.dense = static_cast<std::int32_t>(forward.entry.size());
  const std::size_t bigrams = static_cast<std::size_t>(t.K) * static_cast<std::size_t>(t.K);
  std::vector<std::int32_t> bigram;
  std::vector<Source> pairs;
  for (std::int32_t o = forward.first_thin; o < forward.outs; ++o) {
    const std::int32_t n = node_of[static_cast<std::size_t>(o)];
    if (n < 0) continue;  // padding
    for (std::int32_t m = t.arrival_begin[t.node_state[n]]; m < t.arrival_begin[t.node_state[n] + 1]; ++m) {
      bigram.push_back(t.arrival_label[m] * t.K + t.node_label[n]);
      pairs.push_back({place[static_cast<std::size_t>(m)], o});
    }
  }
  join.sparse = rounds_of(
      bigrams, pairs.size(), {0, join.no_out}, [&](std::size_t i) { return bigram[i]; },
      [&](std::size_t i) { return pairs[i]; });
  std::vector<std::int32_t> pair(forward.entry);
  pair.insert(pair.end(), join.sparse.key.begin(), join.sparse.key.end());
  by_key(
      bigrams, pair.size(), [&](std::size_t e) { return pair[e]; }, join.pair_begin, join.pair_entry);
}

void join_labels(const Topology& t, const Sweep& forward, const Sweep& backward, const std::vector<std::int32_t>& place,
                 Join& join) {
  const auto K = static_cast<std::size_t>(t.K);
  join.arrivals = rounds_of(
      K, static_cast<std::size_t>(t.arrivals), {0, backward.zero()}, [&](std::size_t m) { return t.arrival_label[m]; },
      [&](std::size_t m) {
        return Source{place[m], backward.cell(static_cast<std::int32_t>(m))};
      });
  if (!join.copied) return;
  join.nodes = rounds_of(
      K, static_cast<std::size_t>(t.nodes), {0, join.no_out}, [&](std::size_t n) { return t.node_label[n]; },
      [&](std::size_t n) {
        return Source{forward.cell(static_cast<std::int32_t>(n)), forward.out[n]};
      });
}

void cut_patches(Join& join) {
  for (const JoinGroup& group : join.groups) {
    for (std::int32_t column = 0; column < group.width; column += kPatchColumns) {
      for (std::int32_t row = 0; row < group.rows; row += kPatchRows) {
        join.patches.push_back({group.states, group.slots, group.width, std::min(kPatchRows, group.rows - row),
                                std::min(kPatchColumns, group.width - column), group.first_place + row,
                                group.first_out + column, group.first_entry + row * group.width + column});
      }
    }
  }
}

void join_ends(const Topology& t, const Sweep& forward, Join& join) {
  const auto K = static_cast<std::size_t>(t.K), nodes = static_cast<std::size_t>(t.nodes);
  const auto label = [&](std::size_t n) { return t.node_accepts[n] ? t.node_label[n] : -1; };
  by_key(K, nodes, label, join.end_begin, join.end_cell);
  for (std::int32_t& node : join.end_cell) node = forward.cell(node);
}

}  // namespace

Join make_join(const Topology& t, const Sweep& forward, const Sweep& backward) {
  Join join;
  std::vector<std::int32_t> node_of(static_cast<std::size_t>(forward.outs), -1);
  for (std::int32_t n = 0; n < t.nodes; ++n)
    node_of[static_cast<std::size_t>(forward.out[static_cast<std::size_t>(n)])] = n;
  const std::vector<std::int32_t> place = number_places(t, forward, join);
  join_arrivals(t, forward, backward, place, join);
  join_outs(t, forward, backward, node_of, join);
  find_quads(forward, backward, join);
  join.places = round_up(join.places, 4);
  cut_patches(join);
  join_pairs(t, forward, node_of, place, join);
  join_labels(t, forward, backward, place, join);
  join_ends(t, forward, join);
  return join;
}

}  // namespace regccrf
