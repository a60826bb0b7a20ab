// What can be said of an automaton without any engine: its size, whether it is deterministic or unambiguous, whether it
// accepts a sequence.
//
// Unambiguity. In a trimmed automaton, a sequence has two accepting paths iff two paths part somewhere (one state, one
// label, two targets), go on side by side under equal labels, and then meet again or both end in accepting states. So
// it is enough to walk forward over the unordered pairs of different states that such a parting reaches.
#include "automaton.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "automaton/tuple_table.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

// The clock alone: what a construction does in the end is none of its steps.
Budget untallied(Budget budget) {
  budget.steps = Budget::kUnlimited;
  return budget;
}

// What arcs carry, grouped by a state of theirs, in the arcs' order: one array, without a vector for each state.
class Grouped {
 public:
  template <class Key, class Value>
  Grouped(const Automaton& automaton, Key key, Value value, Meter& meter)
      : end_(automaton.accepting.size() + 1, 0), values_(automaton.arcs.size()) {
    for (const Arc& arc : automaton.arcs) ++end_[static_cast<std::size_t>(key(arc)) + 1];
    for (std::size_t q = 1; q < end_.size(); ++q) end_[q] += end_[q - 1];
    for (const Arc& arc : automaton.arcs) {
      values_[end_[key(arc)]++] = value(arc);
      meter.step();
    }
  }
  std::span<const std::int32_t> of(State q) const {
    const std::int64_t begin = q == 0 ? 0 : end_[q - 1];
    return {values_.data() + begin, static_cast<std::size_t>(end_[q] - begin)};
  }

 private:
  std::vector<std::int64_t> end_;  // [Q+1] where a state's values end; the last is not used
  std::vector<std::int32_t> values_;
};

}  // namespace

Size measure(const Automaton& automaton) {
  Meter unlimited(Budget(), "measure");
  Size size;
  size.states = automaton.states();
  size.arcs = static_cast<std::int64_t>(automaton.arcs.size());
  std::vector<std::int64_t> out(automaton.accepting.size()), in(automaton.accepting.size());
  for (std::size_t i = 0; i < automaton.arcs.size(); ++i) {
    const Arc& arc = automaton.arcs[i];
    const bool same_node = i > 0 && automaton.arcs[i - 1].from == arc.from && automaton.arcs[i - 1].label == arc.label;
    if (!same_node) ++out[arc.from];
  }
  const Grouped arrivals(
      automaton, [](const Arc& arc) { return arc.to; }, [](const Arc& arc) { return arc.label; }, unlimited);
  std::vector<State> last;  // [K] the last state that was seen to be entered by a label
  for (State q = 0; q < automaton.states(); ++q) {
    for (const Label label : arrivals.of(q)) {
      if (static_cast<std::size_t>(label) >= last.size()) last.resize(static_cast<std::size_t>(label) + 1, -1);
      in[q] += std::exchange(last[label], q) != q;
    }
  }
  for (std::size_t q = 0; q < out.size(); ++q) {
    size.nodes += out[q];
    size.products += in[q] * out[q];
  }
  return size;
}

void normalize(Automaton& automaton, int labels) {
  const State states = automaton.states();
  const auto bad = [](const std::string& what) { throw Error("[automaton] " + what); };
  if (automaton.start < 0 || automaton.start >= states) {
    bad("the start state is " + std::to_string(automaton.start) + ", and there are " + std::to_string(states) +
        " states");
  }
  for (const Arc& arc : automaton.arcs) {
    if (arc.from < 0 || arc.from >= states || arc.to < 0 || arc.to >= states) {
      bad("an arc goes from state " + std::to_string(arc.from) + " to state " + std::to_string(arc.to) +
          ", and there are " + std::to_string(states) + " states");
    }
    if (arc.label < 0 || arc.label >= labels) {
      bad("an arc has label number " + std::to_string(arc.label) + ", and there are " + std::to_string(labels) +
          " labels");
    }
  }
  sort_arcs(automaton);
}

// By source state first, in linear time; then each state's arcs, which are few.
void sort_arcs(Automaton& automaton, const Budget& budget) {
  Meter meter(untallied(budget), "sort");
  std::vector<Arc>& arcs = automaton.arcs;
  if (!std::is_sorted(arcs.begin(), arcs.end())) {
    std::vector<std::int64_t> end = arcs_by_state(automaton);
    meter.step(static_cast<std::int64_t>(arcs.size()));
    std::vector<Arc> sorted(arcs.size());
    for (const Arc& arc : arcs) {
      sorted[end[arc.from]++] = arc;
      meter.step();
    }
    for (std::size_t q = 0; q + 1 < end.size(); ++q) {
      const std::int64_t begin = q == 0 ? 0 : end[q - 1];
      std::sort(sorted.begin() + begin, sorted.begin() + end[q]);
      meter.step(4 * (end[q] - begin) + 1);
    }
    arcs = std::move(sorted);
  }
  arcs.erase(std::unique(arcs.begin(), arcs.end()), arcs.end());
}

bool is_deterministic(const Automaton& automaton) {
  for (std::size_t i = 1; i < automaton.arcs.size(); ++i) {
    const Arc &x = automaton.arcs[i - 1], &y = automaton.arcs[i];
    if (x.from == y.from && x.label == y.label) return false;
  }
  return true;
}

std::vector<std::int64_t> arcs_by_state(const Automaton& automaton) {
  std::vector<std::int64_t> begin(automaton.accepting.size() + 1, 0);
  for (const Arc& arc : automaton.arcs) ++begin[arc.from + 1];
  for (std::size_t q = 1; q < begin.size(); ++q) begin[q] += begin[q - 1];
  return begin;
}

std::optional<bool> test_unambiguous(const Automaton& automaton, std::int64_t most_pairs, const Budget& budget) {
  Meter meter(budget, "is_unambiguous");
  const std::vector<std::int64_t> begin = arcs_by_state(automaton);
  TupleTable pairs;
  const auto visit = [&](State x, State y) {
    meter.hold(bytes_of(begin) + pairs.bytes_with(2));
    pairs.find(std::array{std::min(x, y), std::max(x, y)});
  };

  for (std::size_t i = 0; i < automaton.arcs.size(); ++i) {  // partings
    const Arc& arc = automaton.arcs[i];
    for (std::size_t j = i + 1; j < automaton.arcs.size(); ++j) {
      const Arc& other = automaton.arcs[j];
      if (other.from != arc.from || other.label != arc.label) break;
      meter.step();
      visit(arc.to, other.to);
      if (pairs.size() > most_pairs) return std::nullopt;
    }
  }
  for (std::int32_t next = 0; next < pairs.size(); ++next) {
    const State x = pairs[next][0], y = pairs[next][1];
    if (automaton.accepting[x] && automaton.accepting[y]) return false;
    std::int64_t j = begin[y];
    for (std::int64_t i = begin[x]; i < begin[x + 1]; ++i) {
      const Arc& arc = automaton.arcs[i];
      meter.step();
      while (j < begin[y + 1] && automaton.arcs[j].label < arc.label) ++j;
      for (std::int64_t k = j; k < begin[y + 1] && automaton.arcs[k].label == arc.label; ++k) {
        if (automaton.arcs[k].to == arc.to) return false;
        meter.step();
        visit(arc.to, automaton.arcs[k].to);
      }
    }
    if (pairs.size() > most_pairs) return std::nullopt;
  }
  return true;
}

namespace {

std::vector<std::uint8_t> reached(std::vector<State> open, const Grouped& next, std::size_t states, Meter& meter) {
  std::vector<std::uint8_t> seen(states, 0);
  for (const State q : open) seen[q] = 1;
  while (!open.empty()) {
    const State q = open.back();
    open.pop_back();
    meter.step(static_cast<std::int64_t>(next.of(q).size()) + 1);
    for (const State r : next.of(q)) {
      if (!std::exchange(seen[r], 1)) open.push_back(r);
    }
  }
  return seen;
}

}  // namespace

std::vector<std::uint8_t> useful_states(const Automaton& automaton, const Budget& budget) {
  Meter meter(untallied(budget), "trim");
  const auto from = [](const Arc& arc) { return arc.from; };
  const auto to = [](const Arc& arc) { return arc.to; };
  const std::size_t states = automaton.accepting.size();
  std::vector<State> ends;
  for (State q = 0; q < automaton.states(); ++q) {
    if (automaton.accepting[q]) ends.push_back(q);
  }
  std::vector<std::uint8_t> useful = reached({automaton.start}, Grouped(automaton, from, to, meter), states, meter);
  const std::vector<std::uint8_t> finishing =
      reached(std::move(ends), Grouped(automaton, to, from, meter), states, meter);
  for (std::size_t q = 0; q < states; ++q) useful[q] = useful[q] && finishing[q];
  return useful;
}

Automaton without_useless_states(const Automaton& automaton, const Budget& budget) {
  const std::vector<std::uint8_t> useful = useful_states(automaton, budget);
  Meter meter(untallied(budget), "trim");
  Automaton result;
  if (!useful[static_cast<std::size_t>(automaton.start)]) {
    result.accepting = {0};
    return result;
  }
  std::vector<State> place(useful.size());
  for (std::size_t q = 0; q < useful.size(); ++q) {
    place[q] = result.states();
    if (useful[q]) result.accepting.push_back(automaton.accepting[q]);
  }
  result.start = place[static_cast<std::size_t>(automaton.start)];
  result.arcs.reserve(automaton.arcs.size());
  for (const Arc& arc : automaton.arcs) {
    const auto from = static_cast<std::size_t>(arc.from), to = static_cast<std::size_t>(arc.to);
    meter.step();
    if (useful[from] && useful[to]) result.arcs.push_back({place[from], arc.label, place[to]});
  }
  return result;
}

std::optional<std::vector<Label>> shortest_sequence(const Automaton& automaton) {
  const std::vector<std::int64_t> begin = arcs_by_state(automaton);
  std::vector<const Arc*> by(automaton.accepting.size(), nullptr);  // the arc that first reached a state
  std::vector<std::uint8_t> seen(automaton.accepting.size(), 0);
  std::vector<State> open{automaton.start};
  seen[automaton.start] = 1;
  for (std::size_t next = 0; next < open.size(); ++next) {
    State q = open[next];
    if (automaton.accepting[q]) {
      std::vector<Label> labels;
      for (; by[q]; q = by[q]->from) labels.push_back(by[q]->label);
      std::reverse(labels.begin(), labels.end());
      return labels;
    }
    for (std::int64_t i = begin[q]; i < begin[q + 1]; ++i) {
      const Arc& arc = automaton.arcs[i];
      if (std::exchange(seen[arc.to], 1)) continue;
      by[arc.to] = &arc;
      open.push_back(arc.to);
    }
  }
  return std::nullopt;
}

Tracer::Tracer(const Automaton& automaton)
    : automaton_(automaton), begin_(arcs_by_state(automaton)), mark_(automaton.accepting.size(), 0) {
  constexpr std::size_t most = 4096;
  Label labels = 0;
  for (const Arc& arc : automaton.arcs) labels = std::max(labels, arc.label + 1);
  if (automaton.accepting.size() * static_cast<std::size_t>(labels) > most) return;
  labels_ = labels;
  first_.assign(automaton.accepting.size() * static_cast<std::size_t>(labels) + 1, 0);
  for (const Arc& arc : automaton.arcs) ++first_[arc.from * labels + arc.label + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

std::pair<const Arc*, const Arc*> Tracer::arcs_of(State q, Label label) const {
  const Arc* arcs = automaton_.arcs.data();
  if (labels_ > 0) {
    if (label < 0 || label >= labels_) return {arcs, arcs};
    return {arcs + first_[q * labels_ + label], arcs + first_[q * labels_ + label + 1]};
  }
  return std::equal_range(arcs + begin_[q], arcs + begin_[q + 1], Arc{q, label, 0},
                          [](const Arc& x, const Arc& y) { return x.label < y.label; });
}

std::size_t Tracer::follow(const Label* sequence, std::size_t length) {
  now_.assign(1, automaton_.start);
  for (std::size_t t = 0; t < length; ++t) {
    next_.clear();
    ++round_;
    for (State q : now_) {
      const auto [first, last] = arcs_of(q, sequence[t]);
      for (const Arc* arc = first; arc != last; ++arc) {
        if (mark_[arc->to] == round_) continue;
        mark_[arc->to] = round_;
        next_.push_back(arc->to);
      }
    }
    if (next_.empty()) return t;
    std::swap(now_, next_);
  }
  return length;
}

Membership Tracer::trace(const Label* sequence, std::size_t length) {
  const std::size_t reached = follow(sequence, length);
  const bool ends = reached == length && std::any_of(now_.begin(), now_.end(), [&](State q) {
                      return automaton_.accepting[static_cast<std::size_t>(q)] != 0;
                    });
  if (ends) return {true, length, {}};
  return {false, reached, labels_out_of(now_)};
}

std::vector<Label> Tracer::possible_after(const Label* sequence, std::size_t length) {
  return follow(sequence, length) == length ? labels_out_of(now_) : std::vector<Label>();
}

std::vector<Label> Tracer::labels_out_of(const std::vector<State>& states) const {
  std::vector<Label> labels;
  for (State q : states) {
    for (std::int64_t i = begin_[q]; i < begin_[q + 1]; ++i) labels.push_back(automaton_.arcs[i].label);
  }
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  return labels;
}

}  // namespace regccrf
