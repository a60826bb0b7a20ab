// Pairs of a rule's states, from its table of moves (see rule_pairs.h).
#include "constraint/rule_pairs.h"

namespace regccrf {

RulePairs::RulePairs(const RuleTables& rules) {
  for (int rule = 0; rule < rules.size(); ++rule) rules_.push_back(facts_of(rules, rule));
}

RulePairs::Facts RulePairs::facts_of(const RuleTables& rules, int rule) {
  const auto K = static_cast<std::size_t>(rules.labels());
  const State start = rules.start(rule);
  Facts facts{.moves = std::vector<std::uint8_t>(K),
              .starts = std::vector<std::uint8_t>(K),
              .bad_alone = std::vector<std::uint8_t>(K),
              .idle = rules.accepts(rule, start)};
  for (Label a = 0; a < rules.labels(); ++a) {
    for (State s = 0; s < rules.states(rule); ++s) facts.moves[a] |= rules.next(rule, s, a) != s;
    const State to = rules.next(rule, start, a);
    facts.starts[a] = to != start;
    facts.bad_alone[a] = to != start && (to == RuleTables::kBroken || !rules.accepts(rule, to));
    facts.all_start = facts.all_start && (!facts.moves[a] || facts.starts[a]);
  }
  if (rules.states(rule) <= kMostStates) compare(rules, rule, facts);
  return facts;
}

void RulePairs::compare(const RuleTables& rules, int rule, Facts& facts) {
  const State states = rules.states(rule);
  facts.count = states * (states - 1) / 2;
  facts.next.assign(static_cast<std::size_t>(rules.labels()) * facts.count, kAlike);
  facts.differ.assign(static_cast<std::size_t>(facts.count), 0);
  for (State high = 1; high < states; ++high) {
    for (State low = 0; low < high; ++low) {
      const int pair = number(low, high);
      facts.differ[pair] = rules.accepts(rule, low) != rules.accepts(rule, high);
      for (Label a = 0; a < rules.labels(); ++a) {
        const State to_low = rules.next(rule, low, a), to_high = rules.next(rule, high, a);
        std::int32_t& next = facts.next[static_cast<std::size_t>(a) * facts.count + pair];
        if (to_low == to_high) continue;
        const bool one_broken = to_low == RuleTables::kBroken || to_high == RuleTables::kBroken;
        next = one_broken ? kOneBroken : number(to_low, to_high);
      }
    }
  }
}

}  // namespace regccrf
