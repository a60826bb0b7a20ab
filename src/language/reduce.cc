// Merging states that cannot be told apart, by partition refinement.
//
// Classes of states are split by what their states' arcs carry into which classes, until none splits. When a class
// splits, its largest part keeps the class's number, and only states with an arc into a renumbered state are looked at
// again. Each of those has an arc into a new class; the rest of its class has none, and so stays together unseen. A
// state is renumbered at most log2(Q) times, which is what keeps long chains cheap.
//
// Looking forward along a trimmed DFA this is its minimisation. OpenFst's Minimize cannot be stopped; and on automata
// that are not deterministic it merges states that differ.
#include <algorithm>
#include <utility>
#include <vector>

#include "automaton/automaton.h"
#include "automaton/tuple_table.h"
#include "language/algebra.h"

namespace regccrf {
namespace {

constexpr std::int64_t kMostSteps = 50'000'000;  // arcs looked at; dense automata with many classes may need more

class Refinement {
 public:
  // Looks forward along the arcs, or backward. `kinds` tells apart the states that differ from the start. [Q]
  Refinement(const Automaton& automaton, bool forward, const std::vector<std::uint8_t>& kinds, const Budget& budget)
      : meter_(budget, "reduce") {
    const auto arcs = static_cast<std::int64_t>(automaton.arcs.size()), states = std::int64_t{automaton.states()};
    fixed_bytes_ = kBytesOfArc * arcs + kBytesOfState * states;
    meter_.hold(fixed_bytes_);
    Meter clock(budget, "reduce");  // its steps do not count
    order_.resize(kinds.size());
    place_.resize(kinds.size());
    class_.resize(kinds.size());
    sources_.resize(automaton.arcs.size());
    looks_at_.resize(automaton.arcs.size());
    first_look_.assign(kinds.size() + 1, 0);
    first_source_.assign(kinds.size() + 1, 0);
    for (const Arc& arc : automaton.arcs) {
      ++first_look_[(forward ? arc.from : arc.to) + 1];
      ++first_source_[(forward ? arc.to : arc.from) + 1];
      clock.step();
    }
    for (std::size_t q = 1; q < first_look_.size(); ++q) {
      first_look_[q] += first_look_[q - 1];
      first_source_[q] += first_source_[q - 1];
    }
    std::vector<std::int64_t> next_look = first_look_, next_source = first_source_;
    for (const Arc& arc : automaton.arcs) {
      const State from = forward ? arc.from : arc.to, to = forward ? arc.to : arc.from;
      looks_at_[next_look[from]++] = {arc.label, to};
      sources_[next_source[to]++] = from;
      clock.step();
    }
    begin_with(kinds);
  }

  // The class of each state, numbered by the first state of each; nothing where that takes more than `most_steps`.
  std::vector<State> run(std::int64_t most_steps) {
    std::vector<State> open = order_;
    while (!open.empty() && meter_.steps() <= most_steps) {
      renumbered_.clear();
      for (const State c : mark(open)) split(c);
      open = sources_of(renumbered_);
    }
    return open.empty() ? numbered_by_first_state() : std::vector<State>();
  }

 private:
  // Arrays below, and what a round takes in passing: lists of states, each with some arc that leads to the next list.
  static constexpr std::int64_t kBytesOfArc = 12, kBytesOfState = 168;
  struct Look {
    Label label;
    State to;
  };
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
    std::vector<Group> groups = grouped_by_look({whole.begin, whole.begin + whole.marked});
    if (groups.back().end < whole.end) groups.push_back({groups.back().end, whole.end});
    const auto largest = std::max_element(
        groups.begin(), groups.end(), [](const Group& x, const Group& y) { return x.end - x.begin < y.end - y.begin; });
    number(*largest, c);
    for (auto group = groups.begin(); group != groups.end(); ++group) {
      if (group != largest) number(*group, static_cast<State>(classes_.size()));
    }
  }

  // States that look alike, that is, whose arcs carry the same labels into the same classes, side by side.
  std::vector<Group> grouped_by_look(const Group& range) {
    looks_.clear();
    members_.clear();
    members_.reserve(range.end - range.begin);
    std::vector<Group> groups;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const TupleTable::Tuple tuple = look_of(order_[i]);
      meter_.hold(fixed_bytes_ + looks_.bytes_with(tuple.size()) + bytes_of(members_) + bytes_of(look_));
      const auto [look, is_new] = looks_.find(tuple);
      if (is_new) groups.push_back({0, 0});
      ++groups[look].end;
      members_.push_back({look, order_[i]});
    }
    std::size_t at = range.begin;
    for (Group& group : groups) at += std::exchange(group, {at, at}).end;
    for (const auto& [look, q] : members_) put(q, groups[look].end++);
    return groups;
  }

  // (label, class) of its arcs, sorted, each once.
  TupleTable::Tuple look_of(State q) {
    look_.clear();
    for (std::int64_t i = first_look_[q]; i < first_look_[q + 1]; ++i)
      look_.push_back({looks_at_[i].label, class_[looks_at_[i].to]});
    meter_.step(first_look_[q + 1] - first_look_[q] + 1);
    std::sort(look_.begin(), look_.end());
    look_.erase(std::unique(look_.begin(), look_.end()), look_.end());
    static_assert(sizeof(look_[0]) == 2 * sizeof(std::int32_t));
    return {reinterpret_cast<const std::int32_t*>(look_.data()), 2 * look_.size()};
  }

  std::vector<State> sources_of(const std::vector<State>& targets) {
    std::vector<State> states;
    ++round_;
    seen_.resize(class_.size(), 0);
    for (const State q : targets) {
      meter_.step(first_source_[q + 1] - first_source_[q] + 1);
      for (std::int64_t i = first_source_[q]; i < first_source_[q + 1]; ++i) {
        if (std::exchange(seen_[sources_[i]], round_) != round_) states.push_back(sources_[i]);
      }
    }
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

  Meter meter_;
  std::int64_t fixed_bytes_ = 0;
  std::vector<Look> looks_at_;              // [A] by the state that looks
  std::vector<State> sources_;              // [A] the states that look at a state, by that state
  std::vector<std::int64_t> first_look_;    // [Q+1] where a state's begin in looks_at_
  std::vector<std::int64_t> first_source_;  // [Q+1] likewise in sources_
  std::vector<State> order_;                // [Q] states, class by class
  std::vector<std::size_t> place_;          // [Q] where a state is in order_
  std::vector<State> class_;                // [Q]
  std::vector<Class> classes_;
  std::vector<State> renumbered_;
  std::vector<std::uint32_t> seen_;  // [Q] the last round that met a state
  std::uint32_t round_ = 0;
  TupleTable looks_;                              // of the class that is being split
  std::vector<std::pair<Label, State>> look_;     // of one state
  std::vector<std::pair<State, State>> members_;  // (number of its look, state)
};

Automaton quotient(const Automaton& automaton, const std::vector<State>& classes, const Budget& budget) {
  Automaton result;
  result.start = classes[automaton.start];
  result.accepting.assign(static_cast<std::size_t>(*std::max_element(classes.begin(), classes.end())) + 1, 0);
  for (std::size_t q = 0; q < classes.size(); ++q) result.accepting[classes[q]] |= automaton.accepting[q];
  result.arcs.reserve(automaton.arcs.size());
  for (const Arc& arc : automaton.arcs) result.arcs.push_back({classes[arc.from], arc.label, classes[arc.to]});
  sort_arcs(result, budget);
  result.arcs.shrink_to_fit();
  return result;
}

Automaton merged(const Automaton& automaton, bool forward, const Budget& budget, std::int64_t most_steps) {
  std::vector<std::uint8_t> kinds(automaton.accepting.begin(), automaton.accepting.end());
  if (!forward) kinds.assign(kinds.size(), 0);
  if (!forward) kinds[automaton.start] = 1;
  const std::vector<State> classes = Refinement(automaton, forward, kinds, budget).run(most_steps);
  Meter meter(budget, "reduce");
  meter.hold(2 * static_cast<std::int64_t>(automaton.arcs.size() * sizeof(Arc)) + 16 * automaton.states());
  return classes.empty() ? automaton : quotient(automaton, classes, budget);
}

}  // namespace

Automaton merge_forward(const Automaton& automaton, const Budget& budget) {
  Budget any_steps = budget;
  any_steps.steps = Budget::kUnlimited;
  return merged(automaton, /*forward=*/true, any_steps, Budget::kUnlimited);
}

Automaton reduce(const Automaton& automaton, const Budget& budget) {
  Budget any_steps = budget;
  any_steps.steps = Budget::kUnlimited;
  const Automaton half = merged(automaton, /*forward=*/true, any_steps, kMostSteps);
  Meter meter(budget, "reduce");
  meter.hold(bytes_of(half));
  return merged(half, /*forward=*/false, any_steps, kMostSteps);
}

}  // namespace regccrf
