// Pairs of a rule's states, from its table of moves (see rule_pairs.h).
#include "constraint/rule_pairs.h"

namespace regccrf {

RulePairs::RulePairs(const RuleTables& rules) : moved_by_(static_cast<std::size_t>(rules.labels())) {
  for (int rule = 0; rule < rules.size(); ++rule) {
    rules_.push_back(rules.states(rule) <= kMostStates ? compare(rules, rule) : Facts{});
    for (Label a = 0; a < rules.labels(); ++a) {
      bool moves = false;
      for (State s = 0; s < rules.states(rule); ++s) moves = moves || rules.next(rule, s, a) != s;
      if (moves) moved_by_[a].push_back(rule);
    }
  }
}

RulePairs::Facts RulePairs::compare(const RuleTables& rules, int rule) {
  const State free = rules.states(rule);
  const auto accepts = [&](State s) { return s == free || rules.accepts(rule, s); };
  const auto next = [&](State s, Label a) { return s == free ? free : rules.next(rule, s, a); };
  const auto count = static_cast<std::size_t>(number(free - 1, free)) + 1;
  Facts facts{.own = number(0, free), .free = free};
  facts.next.assign(static_cast<std::size_t>(rules.labels()) * count, kAlike);
  facts.differ.assign(count, 0);
  for (State high = 1; high <= free; ++high) {
    for (State low = 0; low < high; ++low) {
      const int pair = number(low, high);
      facts.differ[pair] = accepts(low) != accepts(high);
      for (Label a = 0; a < rules.labels(); ++a) {
        const State to_low = next(low, a), to_high = next(high, a);
        if (to_low == to_high) continue;
        const bool one_broken = to_low == RuleTables::kBroken || to_high == RuleTables::kBroken;
        facts.next[static_cast<std::size_t>(a) * count + pair] = one_broken ? kOneBroken : number(to_low, to_high);
      }
    }
  }
  return facts;
}

}  // namespace regccrf
