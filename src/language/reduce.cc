// Merging states that cannot be told apart, by partition refinement.
//
// Classes of states are split by what their states' arcs carry into which classes, until none splits. When a class
// splits, its largest part keeps the class's number, and only states with an arc into a renumbered state are looked at
// again. Each of those has an arc into a new class; the rest of its class has none, and so stays together unseen. A
// state is renumbered at most log2(Q) times, which is what keeps long chains cheap.
//
// OpenFst's Minimize is for deterministic automata; on others it merges states that differ.
#include <algorithm>
#include <utility>
#include <vector>

#include "automaton/automaton.h"
#include "language/algebra.h"

namespace regccrf {
namespace {

constexpr std::int64_t kMostSteps = 50'000'000;  // arcs looked at; dense automata with many classes may need more

class Refinement {
 public:
  // Looks forward along the arcs, or backward. `kinds` tells apart the states that differ from the start. [Q]
  Refinement(const Automaton& automaton, bool forward, const std::vector<std::uint8_t>& kinds, const Budget& budget)
      : budget_(budget), order_(kinds.size()), place_(kinds.size()), class_(kinds.size()) {
    sources_.resize(kinds.size());
    for (const Arc& arc : automaton.arcs) arcs_.push_back(forward ? arc : Arc{arc.to, arc.label, arc.from});
    std::sort(arcs_.begin(), arcs_.end());
    first_.assign(kinds.size() + 1, 0);
    for (const Arc& arc : arcs_) {
      ++first_[arc.from + 1];
      sources_[arc.to].push_back(arc.from);
    }
    for (std::size_t q = 1; q < first_.size(); ++q) first_[q] += first_[q - 1];
    begin_with(kinds);
  }

  // The class of each state, numbered by the first state of each; nothing where that takes too many steps.
  std::vector<State> run() {
    std::vector<State> open = order_;
    while (!open.empty() && steps_ <= kMostSteps) {
      budget_.check_time("reduce");
      renumbered_.clear();
      for (const State c : mark(open)) split(c);
      open = sources_of(renumbered_);
    }
    return steps_ > kMostSteps ? std::vector<State>() : numbered_by_first_state();
  }

 private:
  using Signature = std::vector<std::pair<Label, State>>;
  struct Class {
    std::size_t begin, end, marked;  // order_[begin … end), of which the first `marked` are to be looked at
  };
  struct Group {
    std::size_t begin, end;
  };

  void begin_with(const std::vector<std::uint8_t>& kinds) {
    std::size_t at = 0;
    for (const std::uint8_t kind : {0, 1}) {
      const std::size_t begin = at;
      for (std::size_t q = 0; q < kinds.size(); ++q) {
        if (kinds[q] == kind) put(static_cast<State>(q), at++);
      }
      number({begin, at}, static_cast<State>(classes_.size()));
    }
    renumbered_.clear();
  }

  void put(State q, std::size_t at) {
    order_[at] = q;
    place_[q] = at;
  }

  void number(const Group& group, State c) {
    if (static_cast<std::size_t>(c) == classes_.size()) {
      classes_.push_back({});
      for (std::size_t i = group.begin; i < group.end; ++i) {
        class_[order_[i]] = c;
        renumbered_.push_back(order_[i]);
      }
    }
    classes_[c] = {group.begin, group.end, 0};
  }

  // Moves these states to the front of their classes; gives the classes.
  std::vector<State> mark(const std::vector<State>& states) {
    std::vector<State> touched;
    for (const State q : states) {
      Class& c = classes_[class_[q]];
      if (c.marked == 0) touched.push_back(class_[q]);
      const std::size_t from = place_[q], to = c.begin + c.marked++;
      put(order_[to], from);
      put(q, to);
    }
    return touched;
  }

  void split(State c) {
    const Class whole = classes_[c];
    std::vector<Group> groups = sorted_by_signature({whole.begin, whole.begin + whole.marked});
    if (groups.back().end < whole.end) groups.push_back({groups.back().end, whole.end});
    const auto largest = std::max_element(
        groups.begin(), groups.end(), [](const Group& x, const Group& y) { return x.end - x.begin < y.end - y.begin; });
    number(*largest, c);
    for (auto group = groups.begin(); group != groups.end(); ++group) {
      if (group != largest) number(*group, static_cast<State>(classes_.size()));
    }
  }

  std::vector<Group> sorted_by_signature(const Group& range) {
    std::vector<std::pair<Signature, State>> looks;
    for (std::size_t i = range.begin; i < range.end; ++i) looks.emplace_back(signature(order_[i]), order_[i]);
    std::sort(looks.begin(), looks.end());
    std::vector<Group> groups;
    for (std::size_t i = 0; i < looks.size(); ++i) {
      put(looks[i].second, range.begin + i);
      if (i == 0 || looks[i].first != looks[i - 1].first) groups.push_back({range.begin + i, range.begin + i});
      ++groups.back().end;
    }
    return groups;
  }

  Signature signature(State q) {
    Signature result;
    for (std::int64_t i = first_[q]; i < first_[q + 1]; ++i) result.emplace_back(arcs_[i].label, class_[arcs_[i].to]);
    steps_ += first_[q + 1] - first_[q] + 1;
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  std::vector<State> sources_of(const std::vector<State>& targets) const {
    std::vector<State> states;
    for (const State q : targets) states.insert(states.end(), sources_[q].begin(), sources_[q].end());
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    return states;
  }

  std::vector<State> numbered_by_first_state() const {
    std::vector<State> number(classes_.size(), -1), result;
    State next = 0;
    for (const State c : class_) {
      if (number[c] < 0) number[c] = next++;
      result.push_back(number[c]);
    }
    return result;
  }

  const Budget& budget_;
  std::vector<Arc> arcs_;                    // sorted; `from` is the state that looks
  std::vector<std::int64_t> first_;          // [Q+1] where a state's arcs begin
  std::vector<std::vector<State>> sources_;  // [Q] the states that look at this one
  std::vector<State> order_;                 // [Q] states, class by class
  std::vector<std::size_t> place_;           // [Q] where a state is in order_
  std::vector<State> class_;                 // [Q]
  std::vector<Class> classes_;
  std::vector<State> renumbered_;
  std::int64_t steps_ = 0;
};

Automaton quotient(const Automaton& automaton, const std::vector<State>& classes) {
  Automaton result;
  result.start = classes[automaton.start];
  result.accepting.assign(static_cast<std::size_t>(*std::max_element(classes.begin(), classes.end())) + 1, 0);
  for (std::size_t q = 0; q < classes.size(); ++q) result.accepting[classes[q]] |= automaton.accepting[q];
  for (const Arc& arc : automaton.arcs) result.arcs.push_back({classes[arc.from], arc.label, classes[arc.to]});
  std::sort(result.arcs.begin(), result.arcs.end());
  result.arcs.erase(std::unique(result.arcs.begin(), result.arcs.end()), result.arcs.end());
  return result;
}

Automaton merged(const Automaton& automaton, bool forward, const Budget& budget) {
  std::vector<std::uint8_t> kinds(automaton.accepting.begin(), automaton.accepting.end());
  if (!forward) kinds.assign(kinds.size(), 0);
  if (!forward) kinds[automaton.start] = 1;
  const std::vector<State> classes = Refinement(automaton, forward, kinds, budget).run();
  return classes.empty() ? automaton : quotient(automaton, classes);
}

}  // namespace

Automaton reduce(const Automaton& automaton, const Budget& budget) {
  return merged(merged(automaton, /*forward=*/true, budget), /*forward=*/false, budget);
}

}  // namespace regccrf
