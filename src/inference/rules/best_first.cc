// A* over positions, nodes and rows of rule states (see best_first.h).
#include "inference/rules/best_first.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <string>
#include <unordered_map>

#include "base/hash.h"
#include "constraint/rule.h"
#include "inference/cpu/path_score.h"

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
      moves_.resize(moves_.size() + rules_.labels(), kUnknown);
    }
    return at->second;
  }

  const RuleTables& rules_;
  std::vector<std::vector<State>> states_;  // [row][rule]
  std::vector<std::int32_t> moves_;         // [row, K]
  std::unordered_map<std::string, std::int32_t> number_;
};

// A beginning of a sequence: it has emitted position t from `node`, and the rules are in `row` after that.
struct Cell {
  double score, bound;
  std::int32_t t, node, row;
  std::int32_t before;  // cell, -1: none
};

constexpr std::int32_t kGoal = -1;  // the node of a whole sequence

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

  std::vector<Path> run(int k) {
    std::vector<Path> paths;
    start();
    while (!open_.empty() && static_cast<int>(paths.size()) < k) {
      const std::int32_t c = open_.top().cell;
      bound_ = open_.top().bound;
      open_.pop();
      if (cells_[c].node == kGoal) {
        paths.push_back(path(c));
      } else if (++visits_[key(cells_[c])] <= k) {
        expand(c);
      }
    }
    return paths;
  }

 private:
  struct Entry {
    double bound;
    std::int32_t t, cell;
    // Of equal bounds the longer beginning, then the older cell.
    bool operator<(const Entry& other) const {
      if (bound != other.bound) return bound < other.bound;
      return t != other.t ? t < other.t : cell > other.cell;
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
    return model_.g[static_cast<std::size_t>(a) * model_.K + b] + emission(t + 1, b);
  }

  void start() {
    for (std::int32_t n = topology_.node_begin[topology_.start]; n < topology_.node_begin[topology_.start + 1]; ++n) {
      const Label a = topology_.node_label[n];
      push(model_.start[a] + emission(0, a), 0, n, Rows::kStart, -1);
    }
  }

  void expand(std::int32_t c) {
    const Cell cell = cells_[c];
    const Label a = topology_.node_label[cell.node];
    if (cell.t == T_ - 1) {
      const bool legal = topology_.node_accepts[cell.node] && rows_.accepts(cell.row);
      if (legal) add({cell.score + model_.end[a], 0, T_, kGoal, cell.row, c}, 0);
      return;
    }
    for (std::int32_t i = topology_.from_begin[cell.node]; i < topology_.from_begin[cell.node + 1]; ++i) {
      const std::int32_t r = topology_.arrival_state[topology_.from_arrival[i]];
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n)
        push(cell.score + step(cell.t, a, n), cell.t + 1, n, cell.row, c);
    }
  }

  // `row`: before node n emits its label.
  void push(double score, std::int32_t t, std::int32_t n, std::int32_t row, std::int32_t before) {
    const double rest = this->rest(t, n);
    if (score + rest == kNone) return;
    const std::int32_t moved = rows_.next(row, topology_.node_label[n]);
    if (moved != Rows::kBroken) add({score, 0, t, n, moved, before}, rest);
  }

  void add(Cell cell, double rest) {
    cell.bound = cell.score + rest;
    if (cell.bound == kNone) return;
    if (cell.before < 0) bound_ = std::max(bound_, cell.bound);
    if (static_cast<std::int64_t>(cells_.size()) >= batch_.options().rules.cells) fail();
    cells_.push_back(cell);
    if (cell.node == kGoal) best_found_ = std::max(best_found_, cell.bound);
    open_.push({cell.bound, cell.t, static_cast<std::int32_t>(cells_.size() - 1)});
  }

  std::uint64_t key(const Cell& cell) const {
    const std::uint64_t place = static_cast<std::uint64_t>(cell.t) * topology_.nodes + cell.node;
    return place << 32 | static_cast<std::uint32_t>(cell.row);
  }

  Path path(std::int32_t goal) const {
    Path result;
    for (std::int32_t c = cells_[goal].before; c >= 0; c = cells_[c].before)
      result.labels.push_back(topology_.node_label[cells_[c].node]);
    std::reverse(result.labels.begin(), result.labels.end());
    result.score = path_score(batch_.scores(), sequence_, result.labels.data());
    return result;
  }

  [[noreturn]] void fail() const {
    const std::string found = best_found_ == kNone
                                  ? "no legal sequence was found"
                                  : "the best legal sequence found has a score of " + std::to_string(best_found_);
    throw Error(at(batch_.operation(), sequence_.index) + ": the best sequence under the rules was not found within " +
                    std::to_string(batch_.options().rules.cells) + " cells of a best-first search; " + found +
                    ", and none has more than " + std::to_string(bound_) +
                    "; raise Options::rules, or state fewer rules",
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
  double best_found_ = kNone;
  double bound_ = kNone;  // of every sequence that has not been found yet
};

}  // namespace

template <class Real>
std::vector<Path> best_first(const Constraint& part, const Constraint& whole, const MaxModel& model,
                             const Batch<Real>& batch, const Sequence<Real>& sequence, int k) {
  if (sequence.T == 0) return {};
  return Search<Real>(part, whole, model, batch, sequence).run(k);
}

template std::vector<Path> best_first(const Constraint&, const Constraint&, const MaxModel&, const Batch<float>&,
                                      const Sequence<float>&, int);
template std::vector<Path> best_first(const Constraint&, const Constraint&, const MaxModel&, const Batch<double>&,
                                      const Sequence<double>&, int);

}  // namespace regccrf
