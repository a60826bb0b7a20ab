// The compiled constraint: an unambiguous automaton laid out for the kernels (see inference/topology.h).
//
// Layout: states are renumbered so that those with equal in-labels and equal out-labels are neighbours (a block), then
// nodes, arrivals and the two gather lists follow from the sorted arcs.
#include "regccrf/constraint.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "inference/cpu/plan.h"
#include "constraint/topology.h"
#include "constraint/constraint_file.h"
#include "base/safetensors.h"
#include "automaton/automaton.h"

namespace regccrf {

struct Constraint::Impl {
  Labels labels;
  Automaton automaton;
  Size size;
  std::string method;
  std::string text;

  std::vector<std::int32_t> node_begin, node_label, node_state, arrival_begin, arrival_label, arrival_state;
  std::vector<std::int32_t> into_begin, into_node, from_begin, from_arrival, block_in_labels, block_out_labels;
  std::vector<std::uint8_t> node_accepts;
  std::vector<Block> blocks;
  std::shared_ptr<const Plan> plan;
  Topology topology;
};

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

// Renumbers states so that equal (in, out) label sets are neighbours, biggest products first.
void sort_states_into_blocks(Automaton& automaton) {
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
  std::sort(automaton.arcs.begin(), automaton.arcs.end());
  automaton.start = place[automaton.start];
  automaton.accepting = std::move(accepting);
}

std::int32_t index(std::size_t n) { return static_cast<std::int32_t>(n); }

}  // namespace

static void lay_out_nodes(const Automaton& automaton, const std::vector<LabelSet>& sets,
                          std::vector<std::int32_t>& begin, std::vector<std::int32_t>& label,
                          std::vector<std::int32_t>& state) {
  begin.assign(1, 0);
  for (State q = 0; q < automaton.states(); ++q) {
    for (Label a : sets[q]) {
      label.push_back(a);
      state.push_back(q);
    }
    begin.push_back(index(label.size()));
  }
}

// Position of (q, a) among places laid out by lay_out_nodes.
static std::int32_t place_of(State q, Label a, const std::vector<std::int32_t>& begin,
                             const std::vector<std::int32_t>& label) {
  const auto first = label.begin() + begin[q], last = label.begin() + begin[q + 1];
  return index(static_cast<std::size_t>(std::lower_bound(first, last, a) - label.begin()));
}

Constraint Constraint::from_automaton(Automaton automaton, const Labels& labels, std::string method, std::string text) {
  normalize(automaton, labels.size());
  const std::vector<std::uint8_t> useful = useful_states(automaton);
  if (!useful[automaton.start]) throw Error("[constraint] the language is empty: no label sequence is legal");
  if (std::find(useful.begin(), useful.end(), 0) != useful.end()) {
    throw Error("[constraint] the automaton has states on no accepting path; trim it, or compile it from a Language");
  }
  const std::int64_t most_pairs = 50'000'000;
  const std::optional<bool> unambiguous = test_unambiguous(automaton, most_pairs);
  if (!unambiguous)
    throw LimitError("[constraint] the automaton is too large to test for ambiguity (over 50,000,000 pairs of states)");
  if (!*unambiguous)
    throw Error("[constraint] the automaton is ambiguous: some sequence has two paths; compile it from a Language");

  sort_states_into_blocks(automaton);
  auto impl = std::make_shared<Impl>();
  impl->labels = labels;
  impl->size = measure(automaton);
  impl->method = std::move(method);
  impl->text = std::move(text);
  if (impl->size.arcs > std::numeric_limits<std::int32_t>::max())
    throw LimitError("[constraint] more than 2^31 - 1 arcs");

  const auto [in, out] = label_sets(automaton);
  lay_out_nodes(automaton, out, impl->node_begin, impl->node_label, impl->node_state);
  lay_out_nodes(automaton, in, impl->arrival_begin, impl->arrival_label, impl->arrival_state);

  std::vector<std::pair<std::int32_t, std::int32_t>> moves;  // (node, arrival), sorted by node as the arcs are
  impl->node_accepts.assign(impl->node_label.size(), 0);
  for (const Arc& arc : automaton.arcs) {
    const std::int32_t node = place_of(arc.from, arc.label, impl->node_begin, impl->node_label);
    moves.emplace_back(node, place_of(arc.to, arc.label, impl->arrival_begin, impl->arrival_label));
    if (automaton.accepting[arc.to]) impl->node_accepts[node] = 1;
  }
  impl->from_begin.assign(impl->node_label.size() + 1, 0);
  impl->into_begin.assign(impl->arrival_label.size() + 1, 0);
  for (const auto& [node, arrival] : moves) {
    ++impl->from_begin[node + 1];
    ++impl->into_begin[arrival + 1];
    impl->from_arrival.push_back(arrival);
  }
  for (auto* begin : {&impl->from_begin, &impl->into_begin}) {
    for (std::size_t i = 1; i < begin->size(); ++i) (*begin)[i] += (*begin)[i - 1];
  }
  impl->into_node.resize(moves.size());
  std::vector<std::int32_t> fill(impl->into_begin.begin(), impl->into_begin.end() - 1);
  for (const auto& [node, arrival] : moves) impl->into_node[fill[arrival]++] = node;

  for (State q = 0; q < automaton.states(); ++q) {
    const bool joins = q > 0 && in[q] == in[q - 1] && out[q] == out[q - 1];
    if (joins) {
      ++impl->blocks.back().states;
      continue;
    }
    impl->blocks.push_back({q, 1, index(in[q].size()), index(out[q].size()), index(impl->block_in_labels.size()),
                            index(impl->block_out_labels.size())});
    impl->block_in_labels.insert(impl->block_in_labels.end(), in[q].begin(), in[q].end());
    impl->block_out_labels.insert(impl->block_out_labels.end(), out[q].begin(), out[q].end());
  }

  impl->automaton = std::move(automaton);
  Topology& t = impl->topology;
  t = {};
  t.K = labels.size();
  t.Q = impl->automaton.states();
  t.A = index(impl->automaton.arcs.size());
  t.nodes = index(impl->node_label.size());
  t.arrivals = index(impl->arrival_label.size());
  t.blocks = index(impl->blocks.size());
  t.start = impl->automaton.start;
  t.products = impl->size.products;
  t.accepting = impl->automaton.accepting.data();
  t.node_begin = impl->node_begin.data();
  t.node_label = impl->node_label.data();
  t.node_state = impl->node_state.data();
  t.arrival_begin = impl->arrival_begin.data();
  t.arrival_label = impl->arrival_label.data();
  t.arrival_state = impl->arrival_state.data();
  t.node_accepts = impl->node_accepts.data();
  t.into_begin = impl->into_begin.data();
  t.into_node = impl->into_node.data();
  t.from_begin = impl->from_begin.data();
  t.from_arrival = impl->from_arrival.data();
  t.block = impl->blocks.data();
  t.block_in_labels = impl->block_in_labels.data();
  t.block_out_labels = impl->block_out_labels.data();
  impl->plan = make_plan(t);
  t.plan = impl->plan.get();
  return Constraint(std::move(impl));
}

Constraint Constraint::unconstrained(const Labels& labels) {
  Automaton automaton;
  automaton.accepting = {1};
  for (Label a = 0; a < labels.size(); ++a) automaton.arcs.push_back({0, a, 0});
  return from_automaton(std::move(automaton), labels, "unconstrained");
}

Constraint::Constraint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

const Labels& Constraint::labels() const { return impl_->labels; }
const Automaton& Constraint::automaton() const { return impl_->automaton; }
const Size& Constraint::size() const { return impl_->size; }
bool Constraint::deterministic() const { return is_deterministic(impl_->automaton); }
const std::string& Constraint::method() const { return impl_->method; }
const std::string& Constraint::text() const { return impl_->text; }
const Topology& Constraint::topology() const { return impl_->topology; }

Membership Constraint::accepts(std::span<const Label> sequence) const {
  return Tracer(impl_->automaton).trace(sequence.data(), sequence.size());
}

void Constraint::save(const std::string& path) const { write_file(path, to_bytes()); }

std::string Constraint::to_bytes() const {
  return encode_constraint_file({impl_->automaton, impl_->labels, impl_->method, impl_->text});
}

namespace {

Constraint from_file(ConstraintFile file) {
  return Constraint::from_automaton(std::move(file.automaton), file.labels, std::move(file.method),
                                    std::move(file.text));
}

}  // namespace

Constraint Constraint::load(const std::string& path) {
  return from_file(decode_constraint_file(read_file(path), path));
}
Constraint Constraint::from_bytes(std::string_view bytes) {
  return from_file(decode_constraint_file(bytes, "constraint bytes"));
}

}  // namespace regccrf
