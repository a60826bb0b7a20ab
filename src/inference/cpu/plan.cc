// Lays a topology out for vector units (see plan.h): in which order the groups and their states lie, and the runs of
// the moves.
#include "inference/cpu/plan.h"

#include <algorithm>
#include <numeric>

#include "constraint/groups.h"

namespace regccrf {

namespace {

bool is_thin(const StateGroup& group) {
  const std::size_t in = group.in_labels.size();
  return in >= 1 && in <= 2 && group.out_labels.size() == 1 && group.states.size() >= 6;
}

std::int64_t products_of(const StateGroup& group) {
  return static_cast<std::int64_t>(group.states.size() * group.in_labels.size() * group.out_labels.size());
}

// A dense plan has few nodes, or up to so many of which most pairs are legal: at most so many pairs for each product.
constexpr std::int32_t kMostDense = 256;
constexpr std::int64_t kMostPairs = 2;

constexpr GroupCost kGroupCost{.overhead = 3, .most_padding = 0};  // of a matrix and some loops

// Those that are not thin first, then by their products.
std::vector<StateGroup> ordered_groups(const Topology& t) {
  std::vector<StateGroup> groups = group_states(t, kGroupCost);
  std::stable_sort(groups.begin(), groups.end(), [](const StateGroup& x, const StateGroup& y) {
    if (is_thin(x) != is_thin(y)) return is_thin(y);
    return products_of(x) > products_of(y);
  });
  return groups;
}

// Orders the states of each group after the places of their successors, and else predecessors, in groups before it.
void order_states(const Topology& t, std::vector<StateGroup>& groups) {
  const std::int32_t unplaced = t.Q;
  std::vector<std::int32_t> place(static_cast<std::size_t>(t.Q), unplaced);
  std::int32_t next = 0;
  const auto key = [&](std::int32_t q) {
    std::int32_t first = unplaced;
    for (std::int32_t n = t.node_begin[q]; n < t.node_begin[q + 1] && first == unplaced; ++n) {
      for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i)
        first = std::min(first, place[t.arrival_state[t.from_arrival[i]]]);
    }
    for (std::int32_t m = t.arrival_begin[q]; m < t.arrival_begin[q + 1] && first == unplaced; ++m) {
      for (std::int32_t i = t.into_begin[m]; i < t.into_begin[m + 1]; ++i)
        first = std::min(first, place[t.node_state[t.into_node[i]]]);
    }
    return first;
  };
  for (StateGroup& group : groups) {
    std::vector<std::pair<std::int32_t, std::int32_t>> keyed;
    for (std::int32_t q : group.states) keyed.emplace_back(key(q), q);
    std::sort(keyed.begin(), keyed.end());
    for (std::size_t s = 0; s < keyed.size(); ++s) {
      group.states[s] = keyed[s].second;
      place[keyed[s].second] = next++;
    }
  }
}

std::int32_t padded(std::int64_t n, std::int64_t unit) {
  return static_cast<std::int32_t>((n + unit - 1) / unit * unit);
}

void add_slots(const std::vector<Label>& labels, std::int32_t slots, std::int32_t K, std::vector<std::int32_t>& all) {
  all.insert(all.end(), labels.begin(), labels.end());
  all.resize(all.size() + static_cast<std::size_t>(slots) - labels.size(), K);
}

// Whether columns have little enough padding.
bool is_columnar(const StateGroup& group) {
  const auto states = static_cast<std::int64_t>(group.states.size()),
             out = static_cast<std::int64_t>(group.out_labels.size());
  return is_thin(group) || 2 * padded(states, kLaneUnit) * out <= 3 * states * padded(out, kLaneUnit);
}

Group lay_out(const StateGroup& alike, bool in_columns, Plan& plan) {
  const auto in = static_cast<std::int64_t>(alike.in_labels.size()),
             out = static_cast<std::int64_t>(alike.out_labels.size()),
             states = static_cast<std::int64_t>(alike.states.size());
  Group group{};
  group.states = static_cast<std::int32_t>(states);
  group.lanes = padded(states, kLaneUnit);
  group.columns = in_columns;
  group.in = group.columns ? static_cast<std::int32_t>(in) : padded(in, kLaneUnit);
  group.out = group.columns ? static_cast<std::int32_t>(out) : padded(out, kLaneUnit);
  group.first_in = static_cast<std::int32_t>(plan.in_labels.size());
  group.first_out = static_cast<std::int32_t>(plan.out_labels.size());
  add_slots(alike.in_labels, group.in, plan.K, plan.in_labels);
  add_slots(alike.out_labels, group.out, plan.K, plan.out_labels);
  group.units = group.columns ? (group.lanes + kUnit - 1) / kUnit : 1;
  group.node = plan.nodes;
  group.arrival = plan.arrivals;
  group.matrix = plan.matrix;
  group.bigrams = plan.bigrams;
  const std::int32_t wide = group.columns ? group.lanes : group.states;
  plan.nodes += padded(static_cast<std::int64_t>(wide) * group.out, 2 * kLaneUnit);
  plan.arrivals += padded(static_cast<std::int64_t>(wide) * group.in, 2 * kLaneUnit);
  const std::int32_t entries = padded(static_cast<std::int64_t>(group.in) * group.out, 2 * kLaneUnit);
  plan.matrix += entries;
  plan.bigrams += group.columns ? std::int64_t{entries} * kUnit : entries;
  return group;
}

std::int32_t cell(const Group& group, std::int32_t first, std::int32_t slots, std::int32_t state, std::int32_t slot) {
  return group.columns ? first + slot * group.lanes + state : first + state * slots + slot;
}

// Cells of the places (q, label) of one state, which lists its labels in order as the group does.
void place(const Group& group, std::int32_t first, std::int32_t slots, const std::int32_t* slot_labels,
           std::int32_t state, const std::int32_t* begin, const std::int32_t* label, std::int32_t q,
           std::vector<std::int32_t>& cells) {
  std::int32_t slot = 0;
  for (std::int32_t n = begin[q]; n < begin[q + 1]; ++n) {
    while (slot_labels[slot] != label[n]) ++slot;
    cells[n] = cell(group, first, slots, state, slot);
  }
}

void add_piece(std::vector<std::int32_t>& pieces, std::pair<std::int32_t, std::int32_t> move, std::int32_t at) {
  pieces.push_back(move.first + at);
  pieces.push_back(move.second + at);
}

// One source of each place, cut into runs and these into pieces. Copies may overlap: the last piece of a run ends with
// it.
void add_runs(std::vector<std::pair<std::int32_t, std::int32_t>> moves, bool copies, Pieces& pieces) {
  std::sort(moves.begin(), moves.end());
  for (std::size_t i = 0; i < moves.size();) {
    std::size_t j = i + 1;
    while (j < moves.size() && moves[j].first == moves[j - 1].first + 1 && moves[j].second == moves[j - 1].second + 1)
      ++j;
    const auto length = static_cast<std::int32_t>(j - i);
    std::int32_t at = 0;
    for (; at + 16 <= length; at += 16) add_piece(pieces.sixteen, moves[i], at);
    for (; at + 8 <= length; at += 8) add_piece(pieces.eight, moves[i], at);
    if (copies && at > 0 && at < length) {
      add_piece(pieces.eight, moves[i], length - 8);
      at = length;
    }
    for (; at < length; ++at) add_piece(pieces.one, moves[i], at);
    i = j;
  }
}

// Sources of places by their cells: `source` numbers places among from_cell.
Move make_move(const std::vector<std::int32_t>& places, const std::int32_t* begin, const std::int32_t* source,
               const std::vector<std::int32_t>& to_cell, const std::vector<std::int32_t>& from_cell) {
  Move move;
  std::int32_t most = 0;
  for (std::int32_t p : places) most = std::max(most, begin[p + 1] - begin[p]);
  for (std::int32_t k = 0; k < most; ++k) {
    std::vector<std::pair<std::int32_t, std::int32_t>> moves;
    for (std::int32_t p : places) {
      if (begin[p] + k < begin[p + 1]) moves.emplace_back(to_cell[p], from_cell[source[begin[p] + k]]);
    }
    add_runs(std::move(moves), k == 0, k == 0 ? move.copies : move.sums);
  }
  return move;
}

// The forward sources of every unit of arrivals. `at[cell]` is the arrival that has this arrival cell, or -1.
class Sources {
 public:
  Sources(const Topology& t, Plan& plan)
      : t_(t), plan_(plan), at_(static_cast<std::size_t>(plan.arrivals), -1), own_cell_(plan.arrival_cell.size(), 0) {
    for (std::int32_t m = 0; m < t.arrivals; ++m) at_[plan.arrival_cell[m]] = m;
    plan.cells = plan.nodes;
    end_.resize(static_cast<std::size_t>(plan.nodes), 0);
    for (const Group& group : plan.groups) {
      const std::int32_t end = group.node + (group.columns ? group.lanes : group.states) * group.out;
      std::fill(end_.begin() + group.node, end_.begin() + end, end);
    }
  }

  void find(Group& group) {
    group.source = static_cast<std::int32_t>(plan_.sources.size());
    const std::int32_t* labels = plan_.in_labels.data() + group.first_in;
    for (std::int32_t i = 0; group.columns && i < group.in; ++i) {
      for (std::int32_t u = 0; u < group.units; ++u) {
        const std::int32_t first = group.arrival + i * group.lanes + u * kUnit,
                           real = std::min(kUnit, group.states - u * kUnit);
        plan_.sources.push_back(unit(first, real, std::min(kUnit, group.lanes - u * kUnit)));
      }
    }
    const std::int32_t in = static_cast<std::int32_t>(std::find(labels, labels + group.in, plan_.K) - labels);
    for (std::int32_t s = 0; !group.columns && s < group.states; ++s) {
      plan_.sources.push_back(unit(group.arrival + s * group.in, in, group.in));
    }
  }

  void finish() { plan_.forward = make_move(own_, t_.into_begin, t_.into_node, own_cell_, plan_.node_cell); }

 private:
  // First cell to read `width` numbers from, of which the first `real` are arrivals and the rest padding.
  std::int32_t unit(std::int32_t first, std::int32_t real, std::int32_t width) {
    const std::int32_t there = neighbours(first, real);
    if (there >= 0 && there + width <= end_[there]) return there;  // what lies between groups is never written
    const std::int32_t own = plan_.cells;
    for (std::int32_t k = 0; k < width; ++k) {
      const std::int32_t m = at_[first + k];
      if (m < 0) continue;
      own_.push_back(m);
      own_cell_[m] = own + k;
    }
    plan_.cells += padded(width, kUnit);
    return own;
  }
  // The first of neighbouring nodes that are the one source of neighbouring arrivals each; -1 where it is not so.
  std::int32_t neighbours(std::int32_t first, std::int32_t real) const {
    std::int32_t start = -1;
    for (std::int32_t k = 0; k < real; ++k) {
      const std::int32_t m = at_[first + k];
      if (m < 0 || t_.into_begin[m + 1] - t_.into_begin[m] != 1) return -1;
      const std::int32_t cell = plan_.node_cell[t_.into_node[t_.into_begin[m]]] - k;
      if (k > 0 && cell != start) return -1;
      start = cell;
    }
    return start;
  }

  const Topology& t_;
  Plan& plan_;
  std::vector<std::int32_t> at_, own_cell_, own_;
  std::vector<std::int32_t> end_;  // [node cells] where the cell's group ends
};

}  // namespace

static bool is_dense(const Topology& t) {
  const std::int64_t pairs = std::int64_t{t.nodes} * t.nodes;
  return t.nodes <= kFewNodes || (t.nodes <= kMostDense && pairs <= kMostPairs * t.products);
}

static void list_thin(const Group& group, Plan& plan) {
  for (std::int32_t u = 0; u < group.units; ++u) {
    Thin thin{};
    thin.width = std::min(kUnit, group.lanes - u * kUnit);
    thin.node = group.node + u * kUnit;
    thin.matrix = group.matrix;
    thin.bigrams = group.bigrams;
    for (std::int32_t k = 0; k < 2; ++k) {
      const std::int32_t i = std::min(k, group.in - 1);
      thin.source[k] = plan.sources[group.source + i * group.units + u];
      thin.arrival[k] = group.arrival + i * group.lanes + u * kUnit;
    }
    plan.thin.push_back(thin);
  }
}

// By label, then by state.
static std::vector<std::int32_t> nodes_by_label(const Topology& t) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(t.nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](std::int32_t x, std::int32_t y) { return t.node_label[x] < t.node_label[y]; });
  return nodes;
}

// [slots, slots] 1 where an arc of the one node leads to the other's state.
static std::vector<std::uint8_t> legal_pairs(const Topology& t, const std::vector<std::int32_t>& slot,
                                             std::int32_t slots) {
  std::vector<std::uint8_t> legal(static_cast<std::size_t>(slots) * static_cast<std::size_t>(slots), 0);
  for (std::int32_t n = 0; n < t.nodes; ++n) {
    for (std::int32_t i = t.from_begin[n]; i < t.from_begin[n + 1]; ++i) {
      const std::int32_t r = t.arrival_state[t.from_arrival[i]];
      for (std::int32_t to = t.node_begin[r]; to < t.node_begin[r + 1]; ++to) legal[slot[n] * slots + slot[to]] = 1;
    }
  }
  return legal;
}

static Plan dense_plan(const Topology& t) {
  Plan plan{};
  plan.K = t.K;
  plan.thick = 1;
  const std::vector<std::int32_t> nodes = nodes_by_label(t);
  StateGroup all{{0}, {}, {}};
  for (std::int32_t n : nodes) all.in_labels.push_back(t.node_label[n]);
  all.out_labels = all.in_labels;
  const Group group = lay_out(all, false, plan);
  plan.groups.push_back(group);
  plan.sources = {0};
  plan.cells = plan.nodes;
  plan.node_cell.resize(nodes.size());
  plan.node_exists.assign(static_cast<std::size_t>(plan.nodes), 0);
  std::vector<std::pair<std::int32_t, std::int32_t>> itself;
  for (std::int32_t c = 0; c < t.nodes; ++c) {
    plan.node_cell[nodes[c]] = c;
    plan.node_exists[c] = 1;
    itself.emplace_back(c, c);
  }
  add_runs(itself, true, plan.backward.copies);
  plan.legal = legal_pairs(t, plan.node_cell, group.out);
  return plan;
}

static Plan grouped_plan(const Topology& t) {
  Plan plan{};
  plan.K = t.K;
  plan.node_cell.resize(static_cast<std::size_t>(t.nodes));
  plan.arrival_cell.resize(static_cast<std::size_t>(t.arrivals));
  std::vector<StateGroup> groups = ordered_groups(t);
  order_states(t, groups);
  for (const StateGroup& alike : groups) {
    const Group group =
        lay_out(alike, is_columnar(alike), plan);  // its sources are found below, when all cells are known
    for (std::size_t s = 0; s < alike.states.size(); ++s) {
      const auto state = static_cast<std::int32_t>(s);
      place(group, group.node, group.out, plan.out_labels.data() + group.first_out, state, t.node_begin, t.node_label,
            alike.states[s], plan.node_cell);
      place(group, group.arrival, group.in, plan.in_labels.data() + group.first_in, state, t.arrival_begin,
            t.arrival_label, alike.states[s], plan.arrival_cell);
    }
    plan.groups.push_back(group);
  }
  plan.node_exists.assign(static_cast<std::size_t>(plan.nodes), 0);
  for (std::int32_t c : plan.node_cell) plan.node_exists[c] = 1;
  Sources sources(t, plan);
  for (Group& group : plan.groups) sources.find(group);
  sources.finish();
  plan.thick = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (is_thin(groups[i])) {
      list_thin(plan.groups[i], plan);
    } else {
      ++plan.thick;
    }
  }
  std::vector<std::int32_t> all(static_cast<std::size_t>(t.nodes));
  std::iota(all.begin(), all.end(), 0);
  plan.backward = make_move(all, t.from_begin, t.from_arrival, plan.node_cell, plan.arrival_cell);
  return plan;
}

const Plan& plan_of(const Topology& topology) {
  return topology.plan->get<Plan>([&] { return is_dense(topology) ? dense_plan(topology) : grouped_plan(topology); });
}

}  // namespace regccrf
