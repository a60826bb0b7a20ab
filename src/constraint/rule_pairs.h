// RulePairs: the states of a rule, compared two by two. Two states of a rule matter to the future only where some
// continuation is accepted from exactly one of them. Reading a label, a pair becomes another pair, or it is settled:
// the two are alike from here on (one state, or both broken), or exactly one of them is broken.
#pragma once

#include <cstdint>
#include <vector>

#include "constraint/rule.h"

namespace regccrf {

class RulePairs {
 public:
  static constexpr std::int32_t kAlike = -1, kOneBroken = -2;
  static constexpr State kMostStates = 24;  // a rule with more states is not compared

  explicit RulePairs(const RuleTables& rules);

  // How many pairs a rule has; 0 where it is not compared.
  int count(int rule) const { return rules_[rule].count; }
  // The number of a pair, of two different states in either order.
  static int number(State s, State other) {
    const State low = s < other ? s : other, high = s < other ? other : s;
    return high * (high - 1) / 2 + low;
  }
  std::int32_t next(int rule, int pair, Label label) const {
    return rules_[rule].next[static_cast<std::size_t>(label) * rules_[rule].count + pair];
  }
  // Whether exactly one of the two accepts at the end of a sequence.
  bool differ_at_end(int rule, int pair) const { return rules_[rule].differ[pair] != 0; }

  // Whether a label moves some state of the rule. What no label of a sequence moves, the sequence obeys, where `idle`.
  bool moves(int rule, Label label) const { return rules_[rule].moves[label] != 0; }
  // Whether a label moves the start state.
  bool starts(int rule, Label label) const { return rules_[rule].starts[label] != 0; }
  bool idle(int rule) const { return rules_[rule].idle; }
  // Whether a label that moves the start state breaks the rule, or leaves it unaccepted, where it stays alone.
  bool bad_alone(int rule, Label label) const { return rules_[rule].bad_alone[label] != 0; }
  // Whether every label that moves some state moves the start state, too.
  bool all_start(int rule) const { return rules_[rule].all_start; }

 private:
  struct Facts {
    int count = 0;
    std::vector<std::int32_t> next = {};                 // [K, count]
    std::vector<std::uint8_t> differ = {};               // [count]
    std::vector<std::uint8_t> moves, starts, bad_alone;  // [K]
    bool idle = false, all_start = true;
  };
  static Facts facts_of(const RuleTables& rules, int rule);
  static void compare(const RuleTables& rules, int rule, Facts& facts);

  std::vector<Facts> rules_;
};

}  // namespace regccrf
