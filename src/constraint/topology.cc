// An automaton laid out for the kernels (see topology.h): nodes and arrivals follow from the states' label sets, the
// two gather lists from the sorted arcs.
#include "constraint/topology.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "automaton/automaton.h"

namespace regccrf {

namespace {

using LabelSet = std::vector<Label>;

// [Q] the distinct labels of the arcs that enter and that leave each state, in order.
std::pair<std::vector<LabelSet>, std::vector<LabelSet>> label_sets(const Automaton& automaton) {
  std::vector<LabelSet> in(automaton.accepting.size()), out(automaton.accepting.size());
  for (const Arc& arc : automaton.arcs) {
    in[arc.to].push_back(arc.label);
    out[arc.from].push_back(arc.label);
  }
  for (auto* sets : {&in, &out}) {
    for (LabelSet& set : *sets) {
      std::sort(set.begin(), set.end());
      set.erase(std::unique(set.begin(), set.end()), set.end());
    }
  }
  return {std::move(in), std::move(out)};
}

std::int32_t index(std::size_t n) { return static_cast<std::int32_t>(n); }

// Where (q, a) stands among the places of all states.
std::int32_t place_of(State q, Label a, const std::vector<std::int32_t>& begin,
                      const std::vector<std::int32_t>& label) {
  const auto first = label.begin() + begin[q], last = label.begin() + begin[q + 1];
  return index(static_cast<std::size_t>(std::lower_bound(first, last, a) - label.begin()));
}

// Counts, one behind their place, to where each place's run begins.
void sum_up(std::vector<std::int32_t>& counts) {
  for (std::size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
}

}  // namespace

void number_states(Automaton& automaton) {
  const auto [in, out] = label_sets(automaton);
  std::vector<State> order(automaton.accepting.size());
  for (std::size_t q = 0; q < order.size(); ++q) order[q] = static_cast<State>(q);
  std::stable_sort(order.begin(), order.end(), [&in = in, &out = out](State x, State y) {
    const std::size_t products_x = in[x].size() * out[x].size(), products_y = in[y].size() * out[y].size();
    if (products_x != products_y) return products_x > products_y;
    return std::tie(in[x], out[x]) < std::tie(in[y], out[y]);
  });
  std::vector<State> place(order.size());
  std::vector<std::uint8_t> accepting(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<State>(i);
    accepting[i] = automaton.accepting[order[i]];
  }
  for (Arc& arc : automaton.arcs) arc = {place[arc.from], arc.label, place[arc.to]};
  automaton.start = place[automaton.start];
  automaton.accepting = std::move(accepting);
  sort_arcs(automaton);
}

TopologyMemory::TopologyMemory(const Automaton& automaton, int labels) : automaton_(automaton), labels_(labels) {
  const auto [in, out] = label_sets(automaton);
  add_places(out, node_begin_, node_label_, node_state_);
  add_places(in, arrival_begin_, arrival_label_, arrival_state_);
  add_arcs();
}

void TopologyMemory::add_places(const std::vector<LabelSet>& labels, std::vector<std::int32_t>& begin,
                                std::vector<std::int32_t>& label, std::vector<std::int32_t>& state) const {
  begin.assign(1, 0);
  for (State q = 0; q < automaton_.states(); ++q) {
    for (Label a : labels[q]) {
      label.push_back(a);
      state.push_back(q);
    }
    begin.push_back(index(label.size()));
  }
}

void TopologyMemory::add_arcs() {
  std::vector<std::pair<std::int32_t, std::int32_t>> moves;  // (node, arrival), sorted by node as the arcs are
  node_accepts_.assign(node_label_.size(), 0);
  from_begin_.assign(node_label_.size() + 1, 0);
  into_begin_.assign(arrival_label_.size() + 1, 0);
  for (const Arc& arc : automaton_.arcs) {
    const std::int32_t node = place_of(arc.from, arc.label, node_begin_, node_label_);
    const std::int32_t arrival = place_of(arc.to, arc.label, arrival_begin_, arrival_label_);
    moves.emplace_back(node, arrival);
    if (automaton_.accepting[arc.to]) node_accepts_[node] = 1;
    ++from_begin_[node + 1];
    ++into_begin_[arrival + 1];
    from_arrival_.push_back(arrival);
  }
  sum_up(from_begin_);
  sum_up(into_begin_);
  into_node_.resize(moves.size());
  std::vector<std::int32_t> next(into_begin_.begin(), into_begin_.end() - 1);
  for (const auto& [node, arrival] : moves) into_node_[next[arrival]++] = node;
}

Topology TopologyMemory::view() const {
  Topology t{};
  t.K = labels_;
  t.Q = automaton_.states();
  t.A = index(automaton_.arcs.size());
  t.nodes = index(node_label_.size());
  t.arrivals = index(arrival_label_.size());
  t.start = automaton_.start;
  t.products = measure(automaton_).products;
  t.accepting = automaton_.accepting.data();
  t.node_begin = node_begin_.data();
  t.node_label = node_label_.data();
  t.node_state = node_state_.data();
  t.arrival_begin = arrival_begin_.data();
  t.arrival_label = arrival_label_.data();
  t.arrival_state = arrival_state_.data();
  t.node_accepts = node_accepts_.data();
  t.into_begin = into_begin_.data();
  t.into_node = into_node_.data();
  t.from_begin = from_begin_.data();
  t.from_arrival = from_arrival_.data();
  t.plan = &plan_;
  return t;
}

}  // namespace regccrf
