// The algebra of automata: subsets, tuples and reversal.
//
// Each construction numbers what it meets (automaton/tuple_table.h) and goes on with the next number until none is
// left: subsets of states to determinise, tuples of states to intersect. Nothing here can be pruned or stopped half-way
// by an engine: OpenFst's own constructions count neither time nor memory, and take several times as much of both.
#include "language/algebra.h"

#include <algorithm>
#include <array>
#include <utility>

#include "automaton/automaton.h"
#include "automaton/tuple_table.h"

namespace regccrf {
namespace {

constexpr std::int64_t kTrimmingArc = 24, kTrimmingState = 32;  // bytes that sorting and trimming take, at most

std::int64_t trimming_bytes(const Automaton& automaton) {
  return kTrimmingArc * static_cast<std::int64_t>(automaton.arcs.size()) + kTrimmingState * automaton.states();
}

// An automaton whose states are the numbers of a table, made in that order.
class Growing {
 public:
  Growing(const Budget& of_call, const char* operation) : budget(of_call), meter(of_call, operation) {}

  State find(TupleTable::Tuple tuple) {
    check(tuple.size());
    return table.find(tuple).first;
  }
  void add_arc(State from, Label label, State to) { result.arcs.push_back({from, label, to}); }

  // The next state's arcs are all there.
  void finish(bool accepting) {
    result.accepting.push_back(accepting);
    check(0);
  }

  Automaton trimmed() {
    table = {};
    meter.hold(fixed_bytes + trimming_bytes(result) + bytes_of(result));
    sort_arcs(result, budget);
    return without_useless_states(result, budget);
  }

  const Budget& budget;
  Meter meter;
  TupleTable table;
  Automaton result;
  std::int64_t fixed_bytes = 0;  // of what else the construction holds

 private:
  // Before a tuple of this length is looked for, and an arc or a state is added.
  void check(std::size_t length) {
    meter.size(table.size(), static_cast<std::int64_t>(result.arcs.size()));
    meter.hold(fixed_bytes + table.bytes_with(length) + bytes_with(result.arcs) + bytes_with(result.accepting));
  }
};

class Subsets {
 public:
  Subsets(const Automaton& automaton, const Budget& budget)
      : automaton_(automaton), growing_(budget, "determinise"), begin_(arcs_by_state(automaton)) {
    Label most = -1;
    for (const Arc& arc : automaton.arcs) most = std::max(most, arc.label);
    growing_.fixed_bytes = static_cast<std::int64_t>(automaton.arcs.size() * sizeof(State)) + 12 * automaton.states() +
                           16 * (std::int64_t{most} + 1);
    growing_.meter.hold(growing_.fixed_bytes);
    targets_.resize(automaton.arcs.size());
    end_.assign(static_cast<std::size_t>(most) + 1, 0);
    mark_.assign(automaton.accepting.size(), 0);
  }

  // The subsets of a trimmed automaton have a future each, so nothing is to be trimmed.
  Automaton run() {
    growing_.find({&automaton_.start, 1});
    for (State q = 0; q < growing_.table.size(); ++q) {
      gather(q);
      std::int64_t at = 0;
      for (const Label label : labels_) {
        const std::int64_t end = std::exchange(end_[label], 0);
        growing_.add_arc(q, label, growing_.find(distinct(at, end)));
        at = end;
      }
      growing_.finish(accepting(q));
    }
    return std::move(growing_.result);
  }

 private:
  // Where the arcs out of subset q lead, label by label: those of a label end at end_[label] in targets_.
  void gather(State q) {
    labels_.clear();
    for (const State s : growing_.table[q]) {
      growing_.meter.step(1 + begin_[s + 1] - begin_[s]);
      for (std::int64_t i = begin_[s]; i < begin_[s + 1]; ++i) {
        if (end_[automaton_.arcs[i].label]++ == 0) labels_.push_back(automaton_.arcs[i].label);
      }
    }
    std::sort(labels_.begin(), labels_.end());
    std::int64_t begin = 0;
    for (const Label label : labels_) begin += std::exchange(end_[label], begin);
    for (const State s : growing_.table[q]) {
      for (std::int64_t i = begin_[s]; i < begin_[s + 1]; ++i)
        targets_[end_[automaton_.arcs[i].label]++] = automaton_.arcs[i].to;
    }
  }

  // The states of targets_[begin … end), sorted, each once.
  TupleTable::Tuple distinct(std::int64_t begin, std::int64_t end) {
    ++round_;
    std::int64_t kept = begin;
    for (std::int64_t i = begin; i < end; ++i) {
      if (std::exchange(mark_[targets_[i]], round_) != round_) targets_[kept++] = targets_[i];
    }
    std::sort(targets_.begin() + begin, targets_.begin() + kept);
    return {targets_.data() + begin, static_cast<std::size_t>(kept - begin)};
  }

  bool accepting(State q) const {
    const TupleTable::Tuple subset = growing_.table[q];
    return std::any_of(subset.begin(), subset.end(), [&](State s) { return automaton_.accepting[s] != 0; });
  }

  const Automaton& automaton_;
  Growing growing_;
  std::vector<std::int64_t> begin_;  // [Q+1]
  std::vector<State> targets_;       // [A]
  std::vector<std::int64_t> end_;    // [K] 0 between gatherings
  std::vector<Label> labels_;        // out of the subset at hand, sorted
  std::vector<std::uint32_t> mark_;  // [Q] the last round that met a state
  std::uint32_t round_ = 0;
};

// Tuples of states, one of each operand, walked under equal labels.
class Product {
 public:
  Product(const std::vector<const Automaton*>& operands, const Budget& budget)
      : operands_(operands),
        growing_(budget, "intersect"),
        from_(operands.size()),
        runs_(operands.size()),
        to_(operands.size()) {
    for (const Automaton* operand : operands) {
      growing_.fixed_bytes += 8 * (operand->states() + 1);
      growing_.meter.hold(growing_.fixed_bytes);
      begin_.push_back(arcs_by_state(*operand));
    }
  }

  Automaton run() {
    for (std::size_t i = 0; i < operands_.size(); ++i) from_[i] = operands_[i]->start;
    growing_.find(from_);
    for (State q = 0; q < growing_.table.size(); ++q) {
      const TupleTable::Tuple tuple = growing_.table[q];
      std::copy(tuple.begin(), tuple.end(), from_.begin());
      leave(q);
      growing_.finish(accepting());
    }
    return growing_.trimmed();
  }

 private:
  struct Run {
    std::int64_t begin, end;  // arcs of an operand with the label at hand
    std::int64_t at;          // the one that is taken now
  };

  const Arc& arc(std::size_t i, std::int64_t at) const { return operands_[i]->arcs[at]; }
  std::int64_t arcs_out(std::size_t i) const { return begin_[i][from_[i] + 1] - begin_[i][from_[i]]; }

  // The labels of the operand that has the fewest arcs here are looked for in the others.
  void leave(State q) {
    std::size_t fewest = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (arcs_out(i) < arcs_out(fewest)) fewest = i;
      runs_[i] = {begin_[i][from_[i]], begin_[i][from_[i]], 0};
    }
    const std::int64_t last = begin_[fewest][from_[fewest] + 1];
    while (runs_[fewest].end < last) {
      const Label label = arc(fewest, runs_[fewest].end).label;
      if (find_runs(label)) add_arcs(q, label);
      find_run(fewest, label);
    }
  }

  bool find_runs(Label label) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!find_run(i, label)) return false;
    }
    return true;
  }

  // Labels are asked for in rising order, so each search starts where the last one ended.
  bool find_run(std::size_t i, Label label) {
    Run& run = runs_[i];
    growing_.meter.step();
    if (run.begin < run.end && arc(i, run.begin).label == label) return true;
    const std::vector<Arc>& arcs = operands_[i]->arcs;
    const auto first = arcs.begin() + run.end, last = arcs.begin() + begin_[i][from_[i] + 1];
    const auto less = [](const Arc& x, Label y) { return x.label < y; };
    run.begin = run.end = std::lower_bound(first, last, label, less) - arcs.begin();
    while (run.end < begin_[i][from_[i] + 1] && arc(i, run.end).label == label) ++run.end;
    return run.begin < run.end;
  }

  // One arc for each choice of an arc of every operand.
  void add_arcs(State q, Label label) {
    for (Run& run : runs_) run.at = run.begin;
    while (true) {
      for (std::size_t i = 0; i < operands_.size(); ++i) to_[i] = arc(i, runs_[i].at).to;
      growing_.meter.step(static_cast<std::int64_t>(operands_.size()));
      growing_.add_arc(q, label, growing_.find(to_));
      std::size_t i = 0;
      while (i < operands_.size() && ++runs_[i].at == runs_[i].end) {
        runs_[i].at = runs_[i].begin;
        ++i;
      }
      if (i == operands_.size()) return;
    }
  }

  bool accepting() const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]->accepting[from_[i]]) return false;
    }
    return true;
  }

  const std::vector<const Automaton*>& operands_;
  Growing growing_;
  std::vector<std::vector<std::int64_t>> begin_;  // of each operand [Q+1]
  std::vector<State> from_;
  std::vector<Run> runs_;
  std::vector<State> to_;
};

// Pairs of a state of x and one of the deterministic y, or kNone where y has no such continuation.
class Difference {
 public:
  Difference(const Automaton& x, const Automaton& y, const Budget& budget)
      : x_(x), y_(y), growing_(budget, "difference"), begin_x_(arcs_by_state(x)), begin_y_(arcs_by_state(y)) {
    growing_.fixed_bytes = bytes_of(begin_x_) + bytes_of(begin_y_);
  }

  Automaton run() {
    growing_.find(std::array{x_.start, y_.start});
    for (State q = 0; q < growing_.table.size(); ++q) {
      const State p = growing_.table[q][0], s = growing_.table[q][1];
      leave(q, p, s);
      growing_.finish(x_.accepting[p] && (s == kNone || !y_.accepting[s]));
    }
    return growing_.trimmed();
  }

 private:
  static constexpr State kNone = -1;

  void leave(State q, State p, State s) {
    std::int64_t j = s == kNone ? 0 : begin_y_[s];
    const std::int64_t last = s == kNone ? 0 : begin_y_[s + 1];
    for (std::int64_t i = begin_x_[p]; i < begin_x_[p + 1]; ++i) {
      const Arc& arc = x_.arcs[i];
      while (j < last && y_.arcs[j].label < arc.label) ++j;
      const bool both = j < last && y_.arcs[j].label == arc.label;
      growing_.add_arc(q, arc.label, growing_.find(std::array{arc.to, both ? y_.arcs[j].to : kNone}));
    }
    growing_.meter.step(begin_x_[p + 1] - begin_x_[p] + last - j + 1);
  }

  const Automaton &x_, &y_;
  Growing growing_;
  std::vector<std::int64_t> begin_x_, begin_y_;
};

}  // namespace

Automaton reverse(const Automaton& automaton, const Budget& budget) {
  Meter meter(budget, "reverse");
  meter.hold(trimming_bytes(automaton) + 24 * static_cast<std::int64_t>(automaton.arcs.size()));
  const auto ends = std::count(automaton.accepting.begin(), automaton.accepting.end(), 1);
  Automaton result;
  result.accepting.assign(automaton.accepting.size() + 1, 0);
  result.start = automaton.states();  // a new state that has the arcs of all that accept
  result.accepting[result.start] = automaton.accepting[automaton.start];
  result.accepting[automaton.start] = 1;
  result.arcs.reserve(automaton.arcs.size() * (ends > 0 ? 2 : 1));
  for (const Arc& arc : automaton.arcs) {
    result.arcs.push_back({arc.to, arc.label, arc.from});
    if (automaton.accepting[arc.to]) result.arcs.push_back({result.start, arc.label, arc.from});
  }
  if (ends == 1) {  // … which is not needed where one accepts: it has the same arcs
    result.start = static_cast<State>(std::find(automaton.accepting.begin(), automaton.accepting.end(), 1) -
                                      automaton.accepting.begin());
  }
  sort_arcs(result, budget);
  return without_useless_states(result, budget);
}

Automaton determinise(const Automaton& automaton, const Budget& budget) { return Subsets(automaton, budget).run(); }

Automaton minimal_dfa(const Automaton& automaton, const Budget& budget) {
  if (accepts_nothing(automaton)) return automaton;
  const Automaton dfa = determinise(automaton, budget);
  Meter meter(budget, "minimise");
  meter.hold(bytes_of(dfa));
  return merge_forward(dfa, budget);
}

Automaton codeterministic(const Automaton& automaton, const Budget& budget) {
  Automaton result = reverse(automaton, budget);
  Meter meter(budget, "reverse");
  meter.hold(bytes_of(result));
  result = minimal_dfa(result, budget);
  meter.hold(bytes_of(result));
  return reverse(result, budget);
}

Automaton intersect(const Automaton& x, const Automaton& y, const Budget& budget) {
  return intersect_all({&x, &y}, budget);
}

Automaton intersect_all(const std::vector<const Automaton*>& operands, const Budget& budget) {
  return operands.size() == 1 ? *operands[0] : Product(operands, budget).run();
}

Automaton difference(const Automaton& x, const Automaton& y, const Budget& budget) {
  const Automaton dfa = determinise(y, budget);
  Meter meter(budget, "difference");
  meter.hold(bytes_of(dfa));
  return Difference(x, dfa, budget).run();
}

bool equivalent(const Automaton& x, const Automaton& y, const Budget& budget) {
  const Automaton dfa_x = minimal_dfa(x, budget);
  Meter meter(budget, "equals");
  meter.hold(bytes_of(dfa_x));
  const Automaton dfa_y = minimal_dfa(y, budget);
  return dfa_x.start == dfa_y.start && dfa_x.accepting == dfa_y.accepting && dfa_x.arcs == dfa_y.arcs;
}

}  // namespace regccrf
