// A* over positions, nodes and rows of rule states (see best_first.h).
#include "inference/rules/best_first.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "constraint/rule.h"

namespace regccrf {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// Rows of rule states, each with a number. A row's moves are found once for each label.
class Rows {
 public:
  explicit Rows(const RuleTables& rules) : rules_(rules) {
    std::vector<State> start;
    for (int rule = 0; rule < rules.size(); ++rule) start.push_back(rules.start(rule));
    find(start);
  }

  static constexpr std::int32_t kStart = 0, kBroken = -1;

  std::int32_t next(std::int32_t row, Label label) {
    std::int32_t& move = moves_[static_cast<std::size_t>(row) * rules_.labels() + label];
    if (move == kUnknown) {
      const std::int32_t found = find_next(row, label);  // may make `moves_` grow
      return moves_[static_cast<std::size_t>(row) * rules_.labels() + label] = found;
    }
    return move;
  }

  // So many labels have to follow at least.
  std::int64_t least_rest(std::int32_t row) const { return least_rest_[row]; }

  bool accepts(std::int32_t row) const {
    for (int rule = 0; rule < rules_.size(); ++rule) {
      if (!rules_.accepts(rule, states_[row][rule])) return false;
    }
    return true;
  }

 private:
  static constexpr std::int32_t kUnknown = -2;

  std::int32_t find_next(std::int32_t row, Label label) {
    std::vector<State> states = states_[row];
    for (int rule = 0; rule < rules_.size(); ++rule) {
      states[rule] = rules_.next(rule, states[rule], label);
      if (states[rule] == RuleTables::kBroken) return kBroken;
    }
    return find(states);
  }

  std::int32_t find(const std::vector<State>& states) {
    const std::string key(reinterpret_cast<const char*>(states.data()), states.size() * sizeof(State));
    const auto [at, is_new] = number_.try_emplace(key, static_cast<std::int32_t>(states_.size()));
    if (is_new) {
      states_.push_back(states);
      least_rest_.push_back(rules_.least_rest(states));
      moves_.resize(moves_.size() + rules_.labels(), kUnknown);
    }
    return at->second;
  }

  const RuleTables& rules_;
  std::vector<std::vector<State>> states_;  // [row][rule]
  std::vector<std::int64_t> least_rest_;    // [row]
  std::vector<std::int32_t> moves_;         // [row, K]
  std::unordered_map<std::string, std::int32_t> number_;
};

// A beginning of a sequence: it has emitted position t from `node`, and the rules are in `row` after that.
struct Cell {
  double score;
  std::int32_t t, node, row;
  std::int32_t before;  // cell, -1: none
};

constexpr std::int32_t kRoot = -1, kGoal = -2;  // the nodes of the empty beginning and of a whole sequence

// A cell that could follow another one.
struct Child {
  double score, bound;
  std::int32_t node, row;
  std::int32_t number;  // among its parent's children
};

// Which of two children comes first.
bool comes_before(const Child& x, const Child& y) {
  return x.bound != y.bound ? x.bound > y.bound : x.number < y.number;
}

template <class Real>
class Search {
 public:
  Search(const Constraint& part, const Constraint& whole, const MaxModel& model, const Batch<Real>& batch,
         const Sequence<Real>& sequence)
      : topology_(part.topology()),
        model_(model),
        batch_(batch),
        sequence_(sequence),
        rows_(whole.rule_tables()),
        T_(static_cast<std::int32_t>(sequence.T)) {
    find_rests();
  }

  std::vector<std::vector<Label>> run(int k) {
    std::vector<std::vector<Label>> paths;
    cells_.push_back({0, -1, kRoot, Rows::kStart, -1});
    open_next(0, nullptr);
    while (!open_.empty() && static_cast<int>(paths.size()) < k) {
      const Entry entry = open_.top();
      open_.pop();
      if (static_cast<std::int64_t>(cells_.size()) >= batch_.options().rules.cells) fail(entry.child.bound);
      open_next(entry.parent, &entry.child);
      const std::int32_t c = add(entry.parent, entry.child);
      if (entry.child.node == kGoal) {
        paths.push_back(path(c));
      } else if (++visits_[key(cells_[c])] <= k) {
        open_next(c, nullptr);
      }
    }
    return paths;
  }

 private:
  // The best child of a cell that has not been visited yet. Only when it is does the next one come in: most children
  // never matter.
  struct Entry {
    Child child;
    std::int32_t t, parent;
    // Of equal bounds the longer beginning, then the older parent.
    bool operator<(const Entry& other) const {
      if (child.bound != other.child.bound) return child.bound < other.child.bound;
      return t != other.t ? t < other.t : parent > other.parent;
    }
  };

  double emission(std::int32_t t, Label a) const { return static_cast<double>(sequence_.at(t)[a]); }
  double rest(std::int32_t t, std::int32_t node) const {
    return rests_[static_cast<std::size_t>(t) * topology_.nodes + node];
  }

  // rests_[t, n]: the best score of what comes after position t was emitted from node n. Backward, all in double.
  void find_rests() {
    const Topology& topology = topology_;
    rests_.assign(static_cast<std::size_t>(T_) * topology.nodes, kNone);
    std::vector<double> arrival(static_cast<std::size_t>(topology.arrivals));
    for (std::int32_t t = T_ - 1; t >= 0; --t) {
      double* rests = rests_.data() + static_cast<std::size_t>(t) * topology.nodes;
      if (t == T_ - 1) {
        for (std::int32_t n = 0; n < topology.nodes; ++n)
          rests[n] = topology.node_accepts[n] ? model_.end[topology.node_label[n]] : kNone;
        continue;
      }
      for (std::int32_t m = 0; m < topology.arrivals; ++m) arrival[m] = best_from(t, m);
      for (std::int32_t n = 0; n < topology.nodes; ++n) {
        for (std::int32_t i = topology.from_begin[n]; i < topology.from_begin[n + 1]; ++i)
          rests[n] = std::max(rests[n], arrival[topology.from_arrival[i]]);
      }
    }
  }

  double best_from(std::int32_t t, std::int32_t m) const {
    const std::int32_t r = topology_.arrival_state[m];
    double best = kNone;
    for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n)
      best = std::max(best, step(t, topology_.arrival_label[m], n) + rest(t + 1, n));
    return best;
  }

  // From label a at t to node n at t + 1.
  double step(std::int32_t t, Label a, std::int32_t n) const {
    const Label b = topology_.node_label[n];
    return model_.transition(a, b) + emission(t + 1, b);
  }

  // visit(child) for everything that may follow a cell.
  template <class Visit>
  void each_child(const Cell& cell, const Visit& visit) {
    std::int32_t number = 0;
    const auto nodes_of = [&](std::int32_t state) {
      for (std::int32_t n = topology_.node_begin[state]; n < topology_.node_begin[state + 1]; ++n, ++number) {
        const Label b = topology_.node_label[n];
        const double gain =
            cell.node == kRoot ? model_.start[b] + emission(0, b) : step(cell.t, topology_.node_label[cell.node], n);
        const double bound = cell.score + gain + rest(cell.t + 1, n);
        if (bound == kNone) continue;
        const std::int32_t row = rows_.next(cell.row, b);
        if (row == Rows::kBroken || rows_.least_rest(row) > T_ - (cell.t + 2)) continue;
        visit(Child{cell.score + gain, bound, n, row, number});
      }
    };
    if (cell.node == kRoot) {
      nodes_of(topology_.start);
    } else if (cell.t == T_ - 1) {
      const double score = cell.score + rest(cell.t, cell.node);
      if (score > kNone && rows_.accepts(cell.row)) visit(Child{score, score, kGoal, cell.row, 0});
    } else {
      for (std::int32_t i = topology_.from_begin[cell.node]; i < topology_.from_begin[cell.node + 1]; ++i)
        nodes_of(topology_.arrival_state[topology_.from_arrival[i]]);
    }
  }

  // Puts the child of cell c that comes behind `last`, or the first one, into the queue.
  void open_next(std::int32_t c, const Child* last) {
    std::optional<Child> next;
    each_child(cells_[c], [&](const Child& child) {
      if ((!last || comes_before(*last, child)) && (!next || comes_before(child, *next))) next = child;
    });
    if (next) open_.push({*next, cells_[c].t + 1, c});
  }

  std::int32_t add(std::int32_t parent, const Child& child) {
    cells_.push_back({child.score, cells_[parent].t + 1, child.node, child.row, parent});
    return static_cast<std::int32_t>(cells_.size() - 1);
  }

  std::uint64_t key(const Cell& cell) const {
    const std::uint64_t place = static_cast<std::uint64_t>(cell.t) * topology_.nodes + cell.node;
    return place << 32 | static_cast<std::uint32_t>(cell.row);
  }

  std::vector<Label> path(std::int32_t goal) const {
    std::vector<Label> labels;
    for (std::int32_t c = cells_[goal].before; cells_[c].node != kRoot; c = cells_[c].before)
      labels.push_back(topology_.node_label[cells_[c].node]);
    std::reverse(labels.begin(), labels.end());
    return labels;
  }

  // A legal sequence, the best that can be found with little work: of the beginnings of each length only a few are
  // kept.
  std::optional<Path> legal_sequence() {
    constexpr std::size_t kKept = 200;
    std::vector<std::pair<std::int32_t, Child>> beam;  // a parent and its child
    cells_.assign(1, {0, -1, kRoot, Rows::kStart, -1});
    std::vector<std::int32_t> parents = {0};
    for (std::int32_t t = 0; t <= T_; ++t) {
      beam.clear();
      for (const std::int32_t parent : parents)
        each_child(cells_[parent], [&](const Child& child) { beam.emplace_back(parent, child); });
      std::stable_sort(beam.begin(), beam.end(),
                       [](const auto& x, const auto& y) { return x.second.bound > y.second.bound; });
      parents.clear();
      std::unordered_set<std::uint64_t> seen;
      for (std::size_t i = 0; i < beam.size() && parents.size() < kKept; ++i) {
        const std::int32_t c = add(beam[i].first, beam[i].second);
        if (t == T_ || seen.insert(key(cells_[c])).second) parents.push_back(c);
      }
    }
    if (parents.empty()) return std::nullopt;
    return Path{path(parents[0]), cells_[parents[0]].score};
  }

  // `bound`: of every sequence that has not been found yet.
  [[noreturn]] void fail(double bound) {
    const std::optional<Path> legal = legal_sequence();
    std::string found = "no legal sequence was found";
    if (legal) {
      found = "the best legal sequence found is";
      constexpr std::size_t kMost = 100;
      const Labels& labels = batch_.constraint(sequence_.index).labels();
      for (std::size_t t = 0; t < std::min(kMost, legal->labels.size()); ++t)
        found += " " + labels.name(legal->labels[t]);
      found +=
          (legal->labels.size() > kMost ? " …" : "") + std::string(", with a score of ") + std::to_string(legal->score);
    }
    throw Error(at(batch_.operation(), sequence_.index) + ": the best sequence under the rules was not found within " +
                    std::to_string(batch_.options().rules.cells) + " cells of a best-first search; " + found +
                    "; none has more than " + std::to_string(bound) + "; raise Options::rules, or state fewer rules",
                ErrorKind::limit, {sequence_.index, {}});
  }

  const Topology& topology_;
  const MaxModel& model_;
  const Batch<Real>& batch_;
  const Sequence<Real>& sequence_;
  Rows rows_;
  std::int32_t T_;
  std::vector<double> rests_;  // [T, N]
  std::vector<Cell> cells_;
  std::priority_queue<Entry> open_;
  std::unordered_map<std::uint64_t, int> visits_;
};

}  // namespace

template <class Real>
std::vector<std::vector<Label>> best_first(const Constraint& part, const Constraint& whole, const MaxModel& model,
                                           const Batch<Real>& batch, const Sequence<Real>& sequence, int k) {
  if (sequence.T == 0) return {};
  return Search<Real>(part, whole, model, batch, sequence).run(k);
}

#define REGCCRF_INSTANTIATE(Real)                                                                            \
  template std::vector<std::vector<Label>> best_first(const Constraint&, const Constraint&, const MaxModel&, \
                                                      const Batch<Real>&, const Sequence<Real>&, int)
REGCCRF_INSTANTIATE(float);
REGCCRF_INSTANTIATE(double);

}  // namespace regccrf
