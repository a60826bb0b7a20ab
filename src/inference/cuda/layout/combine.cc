// How two sweeps are joined (see combine.h).
#include "inference/cuda/layout/combine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
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

// The order of pairs within their rounds is free. Lanes that read at the same time, a pair each of a group's rounds,
// should read from different banks of a chip's memory. So pairs of a round trade places at random, as long as the sum
// of squares of what the banks have to do in a step does not grow, or grows a little, less and less often (annealing).
// A greedy choice leaves several times the conflicts. `zeros`: how many y from the padding's on are as good.
class BankSpreader {
 public:
  BankSpreader(JoinRounds& rounds, Source padding, std::int32_t zeros)
      : rounds_(rounds), padding_(padding), zeros_(zeros), steps_(rounds.height / kRoundLanes) {}

  void spread() {
    constexpr std::int32_t most = 1000000, of_a_pair = 150;  // tries; so many take a tenth of a second
    const std::int32_t groups = (rounds_.rounds() + kRoundsTogether - 1) / kRoundsTogether;
    for (std::int32_t group = 0; group < groups; ++group) {
      first_ = group * kRoundsTogether;
      count_ = std::min(kRoundsTogether, rounds_.rounds() - first_);
      loads_.assign(static_cast<std::size_t>(steps_), {});
      const std::int32_t pairs = count_ * rounds_.height, tries = std::min(of_a_pair * pairs, most / groups);
      std::int32_t conflicts = 0;  // the sum of squares, but for what it is without any
      for (std::int32_t i = 0; i < pairs; ++i)
        conflicts += is_padding(pair(i)) ? 0 : change(pair(i), step_of(i), 1) - 2;
      for (std::int32_t left = tries; left > 0 && conflicts > 0; --left) conflicts += try_to_trade(0.5 * left / tries);
      fill_padding();
    }
  }

 private:
  static constexpr std::int32_t kBanks = 32;
  struct Loads {
    std::int32_t x[kBanks], y[kBanks];  // how often each bank is read in a step
  };

  std::int32_t draw(std::int32_t below) { return static_cast<std::int32_t>(random_() % static_cast<unsigned>(below)); }
  Source& pair(std::int32_t i) { return rounds_.pair[static_cast<std::size_t>(first_ * rounds_.height + i)]; }
  std::int32_t step_of(std::int32_t i) const { return i % rounds_.height / kRoundLanes; }
  bool is_padding(const Source& s) const { return s.y == padding_.y; }

  // One read more or less; by how much the sum of squares grows. Padding finds its place in the end.
  std::int32_t change(const Source& s, std::int32_t step, std::int32_t by) {
    if (is_padding(s)) return 0;
    Loads& loads = loads_[static_cast<std::size_t>(step)];
    std::int32_t &x = loads.x[s.x % kBanks], &y = loads.y[s.y % kBanks];
    x += by;
    y += by;
    return 2 * by * (x + y) - 2;
  }
  std::int32_t trade(std::int32_t i, std::int32_t j) {
    Source &s = pair(i), &t = pair(j);
    const std::int32_t less = change(s, step_of(i), -1) + change(t, step_of(j), -1);
    std::swap(s, t);
    return less + change(s, step_of(i), 1) + change(t, step_of(j), 1);
  }
  // By how much the sum of squares has grown.
  std::int32_t try_to_trade(double temperature) {
    const std::int32_t round = draw(count_) * rounds_.height, i = round + draw(rounds_.height),
                       j = round + draw(rounds_.height);
    if (step_of(i) == step_of(j)) return 0;
    const std::int32_t grows = trade(i, j);
    constexpr std::int32_t fine = 1 << 20;
    if (grows <= 0 || draw(fine) < fine * std::exp(-grows / 2.0 / temperature)) return grows;
    trade(i, j);  // back again
    return 0;
  }

  // All padding of a step reads the same: of x what another lane reads anyway, since it does not matter; of y the zero
  // whose bank has the least to do.
  void fill_padding() {
    for (std::int32_t step = 0; step < steps_; ++step) {
      Source best = padding_;
      const std::int32_t* y = loads_[static_cast<std::size_t>(step)].y;
      for (std::int32_t zero = padding_.y; zero < padding_.y + zeros_; ++zero) {
        if (y[zero % kBanks] < y[best.y % kBanks]) best.y = zero;
      }
      for (const bool padding : {false, true}) {
        for (std::int32_t i = 0; i < count_ * rounds_.height; ++i) {
          if (step_of(i) != step || is_padding(pair(i)) != padding) continue;
          (padding ? pair(i) : best) = padding ? best : Source{pair(i).x, best.y};
        }
      }
    }
  }

  JoinRounds& rounds_;
  const Source padding_;
  const std::int32_t zeros_;
  std::int32_t steps_, first_ = 0, count_ = 0;
  std::vector<Loads> loads_;  // [steps] of the group
  std::mt19937 random_;       // the same in every run
};

// `key`: [count] below `keys`, of things that pair_of(thing) stands for. `padding`, `zeros`: as BankSpreader has them;
// no zeros: they stay in their order.
template <class KeyOf, class PairOf>
JoinRounds rounds_of(std::size_t keys, std::size_t count, Source padding, std::int32_t zeros, const KeyOf& key_of,
                     const PairOf& pair_of) {
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
  if (zeros > 0) BankSpreader(rounds, padding, zeros).spread();
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
      bigrams, pairs.size(), {0, join.no_out}, kPatchColumns, [&](std::size_t i) { return bigram[i]; },
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
      K, static_cast<std::size_t>(t.arrivals), {0, backward.zero()}, 1,
      [&](std::size_t m) { return t.arrival_label[m]; },
      [&](std::size_t m) {
        return Source{place[m], backward.cell(static_cast<std::int32_t>(m))};
      });
  if (!join.copied) return;
  join.nodes = rounds_of(
      K, static_cast<std::size_t>(t.nodes), {0, join.no_out}, kPatchColumns,
      [&](std::size_t n) { return t.node_label[n]; },
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
  if (join.copied) {
    join.ends = rounds_of(K, nodes, {0, 1}, 0, label, [&](std::size_t n) {
      return Source{forward.cell(static_cast<std::int32_t>(n)), 0};
    });
  }
  for (std::int32_t& node : join.end_cell) node = forward.cell(node);
}

}  // namespace

std::vector<std::uint32_t> JoinRounds::packed() const {
  constexpr std::int32_t most = 65536 / 4;
  std::vector<std::uint32_t> all;
  for (std::int32_t first = 0; first < rounds(); first += kRoundsTogether) {
    for (std::int32_t step = 0; step < height / kRoundLanes; step += kRoundSteps) {
      for (std::int32_t i = 0; i < 32 * kRoundSteps; ++i) {
        const std::int32_t lane = i / kRoundSteps, round = std::min(first + lane / kRoundLanes, rounds() - 1);
        const Source& s = pair[static_cast<std::size_t>(round * height + (step + i % kRoundSteps) * kRoundLanes +
                                                        lane % kRoundLanes)];
        if (s.x >= most || s.y >= most) return {};
        all.push_back(static_cast<std::uint32_t>(s.x) * 4 | static_cast<std::uint32_t>(s.y) * 4 << 16);
      }
    }
  }
  return all;
}

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
