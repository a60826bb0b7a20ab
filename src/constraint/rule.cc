// Tables of moves, from deterministic automata (see rule.h).
#include "constraint/rule.h"

#include <algorithm>
#include <limits>
#include <map>

#include "regccrf/error.h"

namespace regccrf {

namespace {

// For each state: how many labels lead to the nearest accepting state.
std::vector<std::int32_t> least_to_accept(const Automaton& automaton) {
  constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  std::vector<std::vector<State>> into(automaton.accepting.size());
  for (const Arc& arc : automaton.arcs) into[arc.to].push_back(arc.from);
  std::vector<std::int32_t> least(automaton.accepting.size(), kNever);
  std::vector<State> found;
  for (std::size_t s = 0; s < least.size(); ++s) {
    if (!automaton.accepting[s]) continue;
    least[s] = 0;
    found.push_back(static_cast<State>(s));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const State from : into[found[i]]) {
      if (least[from] != kNever) continue;
      least[from] = least[found[i]] + 1;
      found.push_back(from);
    }
  }
  return least;
}

}  // namespace

RuleTables::RuleTables(std::span<const Rule> rules, int labels) : labels_(labels) {
  for (const Rule& rule : rules) {
    const Automaton& automaton = rule.automaton;
    if (!is_deterministic(automaton)) throw Error("[constraint] a rule's automaton is not deterministic");
    Table table{automaton.start, automaton.accepting, {}, least_to_accept(automaton)};
    table.next.assign(automaton.accepting.size() * static_cast<std::size_t>(labels), kBroken);
    for (const Arc& arc : automaton.arcs) table.next[static_cast<std::size_t>(arc.from) * labels + arc.label] = arc.to;
    tables_.push_back(std::move(table));
  }
  for (Label a = 0; a < labels; ++a) {
    const auto helped =
        std::count_if(tables_.begin(), tables_.end(), [&](const Table& table) { return helps(table, a); });
    most_helped_ = std::max<std::int64_t>(most_helped_, helped);
  }
}

bool RuleTables::helps(const Table& table, Label label) const {
  for (std::size_t s = 0; s < table.least.size(); ++s) {
    const State to = table.next[s * static_cast<std::size_t>(labels_) + label];
    if (to != kBroken && table.least[to] < table.least[s]) return true;
  }
  return false;
}

std::int64_t RuleTables::least_rest(std::span<const State> states) const {
  std::int64_t most = 0, sum = 0;
  for (int rule = 0; rule < size(); ++rule) {
    const std::int64_t least = tables_[rule].least[states[rule]];
    most = std::max(most, least);
    sum += least;
  }
  return std::max(most, (sum + most_helped_ - 1) / most_helped_);
}

std::int64_t RuleTables::least_length() const {
  std::vector<State> starts;
  for (const Table& table : tables_) starts.push_back(table.start);
  return least_rest(starts);
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
