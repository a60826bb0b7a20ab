#include "tests/oracle/automata.h"

#include <algorithm>
#include <vector>

namespace regccrf::oracle {

namespace {

// One more round of "reachable in one arc" until nothing changes.
std::vector<bool> closure(const Automaton& automaton, std::vector<bool> reached, bool forward) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Arc& arc : automaton.arcs) {
      const State from = forward ? arc.from : arc.to, to = forward ? arc.to : arc.from;
      if (!reached[from] || reached[to]) continue;
      reached[to] = true;
      changed = true;
    }
  }
  return reached;
}

}  // namespace

Automaton everything(int labels) {
  Automaton automaton;
  automaton.accepting = {1};
  for (Label a = 0; a < labels; ++a) automaton.arcs.push_back({0, a, 0});
  return automaton;
}

Automaton ring(int states, int labels) {
  Automaton automaton;
  automaton.accepting.assign(static_cast<std::size_t>(states), 1);
  for (State q = 0; q < states; ++q) {
    for (Label a = 0; a < labels; ++a) automaton.arcs.push_back({q, a, (q + 1) % states});
  }
  return automaton;
}

Automaton trim(const Automaton& automaton) {
  if (automaton.states() == 0) return {};
  std::vector<bool> start(automaton.accepting.size(), false);
  start[automaton.start] = true;
  const std::vector<bool> reachable = closure(automaton, start, true);
  const std::vector<bool> finishing =
      closure(automaton, std::vector<bool>(automaton.accepting.begin(), automaton.accepting.end()), false);

  std::vector<State> place(automaton.accepting.size(), -1);
  Automaton trimmed;
  for (State q = 0; q < automaton.states(); ++q) {
    if (!reachable[q] || !finishing[q]) continue;
    place[q] = trimmed.states();
    trimmed.accepting.push_back(automaton.accepting[q]);
  }
  if (place[automaton.start] < 0) return {};
  trimmed.start = place[automaton.start];
  for (const Arc& arc : automaton.arcs) {
    if (place[arc.from] < 0 || place[arc.to] < 0) continue;
    trimmed.arcs.push_back({place[arc.from], arc.label, place[arc.to]});
  }
  std::sort(trimmed.arcs.begin(), trimmed.arcs.end());
  return trimmed;
}

Automaton reverse(const Automaton& automaton) {
  Automaton reversed;
  reversed.start = automaton.states();
  reversed.accepting.assign(automaton.accepting.size() + 1, 0);
  reversed.accepting[automaton.start] = 1;
  reversed.accepting[reversed.start] = automaton.accepting[automaton.start];
  for (const Arc& arc : automaton.arcs) {
    reversed.arcs.push_back({arc.to, arc.label, arc.from});
    if (automaton.accepting[arc.to]) reversed.arcs.push_back({reversed.start, arc.label, arc.from});
  }
  std::sort(reversed.arcs.begin(), reversed.arcs.end());
  return reversed;
}

Automaton product(const Automaton& left, const Automaton& right) {
  const auto pair = [&right](State p, State q) { return p * right.states() + q; };
  Automaton both;
  both.start = pair(left.start, right.start);
  for (std::uint8_t accepts : left.accepting) {
    for (std::uint8_t also : right.accepting) both.accepting.push_back(accepts && also);
  }
  for (const Arc& x : left.arcs) {
    for (const Arc& y : right.arcs) {
      if (x.label == y.label) both.arcs.push_back({pair(x.from, y.from), x.label, pair(x.to, y.to)});
    }
  }
  std::sort(both.arcs.begin(), both.arcs.end());
  return both;
}

std::int64_t count_paths(const Automaton& automaton, std::span<const Label> sequence) {
  std::vector<std::int64_t> paths(automaton.accepting.size(), 0);
  paths[automaton.start] = 1;
  for (Label label : sequence) {
    std::vector<std::int64_t> next(paths.size(), 0);
    for (const Arc& arc : automaton.arcs) {
      if (arc.label == label) next[arc.to] += paths[arc.from];
    }
    paths = std::move(next);
  }
  std::int64_t accepted = 0;
  for (std::size_t q = 0; q < paths.size(); ++q) accepted += automaton.accepting[q] ? paths[q] : 0;
  return accepted;
}

}  // namespace regccrf::oracle
