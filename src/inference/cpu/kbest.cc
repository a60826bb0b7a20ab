// The k best sequences, by recursive enumeration (Jiménez & Marzal 2000). Viterbi scores give every node its best
// beginning; the next best one of a node is found only when somebody asks for it, from the next best ones of its
// predecessors. Distinct paths are distinct sequences, because the automaton is unambiguous. The recursion is a stack
// of its own, so T may be long.
#include "inference/cpu/kbest.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "inference/cpu/path_score.h"

namespace regccrf {

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Beginning {
  double score;
  std::int32_t from;  // node at t-1, or -1 at position 0
  std::int32_t rank;  // which of that node's beginnings
};
bool operator<(const Beginning& x, const Beginning& y) { return x.score < y.score; }

// A node at a position: its beginnings found so far, best first, and candidates for the next.
struct Place {
  std::vector<Beginning> found;
  std::vector<Beginning> candidates;  // a heap
  std::size_t expanded = 0;           // how many of `found` have had their successor put among the candidates
  bool exhausted = false;
};

template <class Real>
class Enumeration {
 public:
  Enumeration(const Constraint& constraint, BestPaths<Real>& best, const Sequence<Real>& sequence, Arena& arena)
      : topology_(constraint.topology()),
        cell_(plan_of(topology_).node_cell.data()),
        cells_(plan_of(topology_).cells),
        model_(best.model()),
        sequence_(sequence),
        delta_(arena.take<double>(static_cast<std::size_t>(sequence.T) * cells_)) {
    best.beginnings(constraint, sequence, arena, delta_);
  }

  // The rank-th best path, from 0 and in order; false when there are no more.
  bool path(std::int32_t rank, Label* y) {
    if (!find(sequence_.T, kEnd, rank)) return false;
    std::int32_t node = kEnd;
    for (std::int64_t t = sequence_.T; t > 0; --t) {
      find(t, node, rank);  // nobody may have asked this place before
      const Beginning beginning = place(t, node).found[rank];
      node = beginning.from;
      rank = beginning.rank;
      y[t - 1] = topology_.node_label[node];
    }
    return true;
  }

 private:
  static constexpr std::int32_t kEnd = 0;  // the one place at position T
  struct Task {
    std::int64_t t;
    std::int32_t node, rank;
  };

  std::uint64_t key(std::int64_t t, std::int32_t node) const {
    return static_cast<std::uint64_t>(t) * (static_cast<std::uint64_t>(topology_.nodes) + 1) +
           static_cast<std::uint64_t>(node);
  }

  // Has place (t, node) find its beginning number `rank`, and whatever that needs before it.
  bool find(std::int64_t t, std::int32_t node, std::int32_t rank) {
    std::vector<Task> stack{{t, node, rank}};
    while (!stack.empty()) {
      const Task task = stack.back();
      Place& place = this->place(task.t, task.node);
      if (place.exhausted || place.found.size() > static_cast<std::size_t>(task.rank)) {
        stack.pop_back();
      } else if (place.expanded < place.found.size()) {
        expand(task, place, stack);
      } else {
        take_best(place);
      }
    }
    return this->place(t, node).found.size() > static_cast<std::size_t>(rank);
  }

  void take_best(Place& place) {
    if (place.candidates.empty()) {
      place.exhausted = true;
      return;
    }
    std::pop_heap(place.candidates.begin(), place.candidates.end());
    place.found.push_back(place.candidates.back());
    place.candidates.pop_back();
  }

  // Puts the successor of the last beginning found among the candidates, or asks its predecessor to find one first.
  void expand(const Task& task, Place& place, std::vector<Task>& stack) {
    const Beginning last = place.found[place.expanded];
    if (task.t == 0) {
      ++place.expanded;
      return;
    }
    const Place& before = this->place(task.t - 1, last.from);
    const auto rank = static_cast<std::size_t>(last.rank) + 1;
    if (before.found.size() > rank) {
      push(place, {before.found[rank].score + step(task.t, task.node, last.from), last.from, last.rank + 1});
    } else if (!before.exhausted) {
      stack.push_back({task.t - 1, last.from, last.rank + 1});
      return;
    }
    ++place.expanded;
  }

  static void push(Place& place, const Beginning& beginning) {
    if (beginning.score == kNone) return;
    place.candidates.push_back(beginning);
    std::push_heap(place.candidates.begin(), place.candidates.end());
  }

  // Score of going from node `from` at t-1 to `node` at t.
  double step(std::int64_t t, std::int32_t node, std::int32_t from) const {
    const std::int32_t a = topology_.node_label[from];
    if (t == sequence_.T) return model_.end[a];
    const std::int32_t b = topology_.node_label[node];
    return model_.transition(a, b) + sequence_.at(t)[b];
  }

  Place& place(std::int64_t t, std::int32_t node) {
    const auto [at, fresh] = places_.try_emplace(key(t, node));
    if (fresh) start(t, node, at->second);
    return at->second;
  }

  void start(std::int64_t t, std::int32_t node, Place& place) const {
    if (t == 0) {
      push(place, {delta_[cell_[node]], -1, 0});
      return;
    }
    const double* delta = delta_ + (t - 1) * cells_;
    if (t == sequence_.T) {
      for (std::int32_t n = 0; n < topology_.nodes; ++n) {
        if (topology_.node_accepts[n]) push(place, {delta[cell_[n]] + step(t, node, n), n, 0});
      }
      return;
    }
    const std::int32_t r = topology_.node_state[node];
    for (std::int32_t i = topology_.into_begin[topology_.arrival_begin[r]];
         i < topology_.into_begin[topology_.arrival_begin[r + 1]]; ++i) {
      const std::int32_t n = topology_.into_node[i];
      push(place, {delta[cell_[n]] + step(t, node, n), n, 0});
    }
  }

  const Topology& topology_;
  const std::int32_t* cell_;  // [N]
  std::int64_t cells_;
  const MaxModel& model_;
  const Sequence<Real>& sequence_;
  double* delta_;  // [T, cells]
  std::unordered_map<std::uint64_t, Place> places_;
};

}  // namespace

template <class Real>
std::vector<Path> best_paths(const Constraint& constraint, BestPaths<Real>& best, const Scores<Real>& scores,
                             const Sequence<Real>& sequence, int k, Arena& arena, const Wanted& wanted) {
  const Topology& topology = constraint.topology();
  std::vector<Path> paths;
  if (sequence.T == 0) {
    if (topology.accepting[topology.start] && wanted({}) == Want::kept) paths.push_back({{}, 0});
    return paths;
  }
  Enumeration<Real> enumeration(constraint, best, sequence, arena);
  std::vector<Label> labels(static_cast<std::size_t>(sequence.T));
  for (int rank = 0; static_cast<int>(paths.size()) < k; ++rank) {
    if (!enumeration.path(rank, labels.data())) break;
    const Want want = wanted(labels);
    if (want == Want::enough) break;
    if (want == Want::kept) paths.push_back({labels, path_score(scores, sequence, labels.data())});
  }
  // The sums above may differ from the enumeration's in their last bit.
  std::stable_sort(paths.begin(), paths.end(), [](const Path& x, const Path& y) { return x.score > y.score; });
  return paths;
}

template std::vector<Path> best_paths(const Constraint&, BestPaths<float>&, const Scores<float>&,
                                      const Sequence<float>&, int, Arena&, const Wanted&);
template std::vector<Path> best_paths(const Constraint&, BestPaths<double>&, const Scores<double>&,
                                      const Sequence<double>&, int, Arena&, const Wanted&);

}  // namespace regccrf
