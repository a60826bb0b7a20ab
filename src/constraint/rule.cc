// Tables of moves, from deterministic automata (see rule.h).
#include "constraint/rule.h"

#include <algorithm>
#include <map>

#include "regccrf/error.h"

namespace regccrf {

RuleTables::RuleTables(std::span<const Rule> rules, int labels) : labels_(labels) {
  for (const Rule& rule : rules) {
    const Automaton& automaton = rule.automaton;
    if (!is_deterministic(automaton)) throw Error("[constraint] a rule's automaton is not deterministic");
    Table table{automaton.start, automaton.accepting, {}};
    table.next.assign(automaton.accepting.size() * static_cast<std::size_t>(labels), kBroken);
    for (const Arc& arc : automaton.arcs) table.next[static_cast<std::size_t>(arc.from) * labels + arc.label] = arc.to;
    tables_.push_back(std::move(table));
  }
}

std::vector<int> RuleTables::broken(std::span<const Label> sequence) const {
  std::vector<int> rules;
  for (int rule = 0; rule < size(); ++rule) {
    State state = start(rule);
    for (std::size_t t = 0; t < sequence.size() && state != kBroken; ++t) state = next(rule, state, sequence[t]);
    if (state == kBroken || !accepts(rule, state)) rules.push_back(rule);
  }
  return rules;
}

std::vector<Label> RuleTables::subject(int rule) const {
  std::map<std::vector<State>, std::vector<Label>> alike;  // column of the table → the labels that have it
  for (Label a = 0; a < labels_; ++a) {
    std::vector<State> column;
    for (State s = 0; s < states(rule); ++s) column.push_back(next(rule, s, a));
    alike[column].push_back(a);
  }
  const auto largest = std::max_element(alike.begin(), alike.end(),
                                        [](const auto& x, const auto& y) { return x.second.size() < y.second.size(); });
  std::vector<Label> labels;
  for (auto set = alike.begin(); set != alike.end(); ++set) {
    if (set != largest || alike.size() == 1) labels.insert(labels.end(), set->second.begin(), set->second.end());
  }
  std::sort(labels.begin(), labels.end());
  return labels;
}

}  // namespace regccrf
