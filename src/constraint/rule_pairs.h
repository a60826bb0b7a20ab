// RulePairs: the states of a rule, compared two by two. Two states of a rule matter to the future only where some
// continuation is accepted from exactly one of them. Reading a label, a pair becomes another pair, or it is settled:
// the two are alike from here on (one state, or both broken), or exactly one of them is broken.
//
// Beside a rule's own states there is one that accepts everything, `free`. Of a pair with it exactly one accepts where
// the rule is broken in the end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "constraint/rule.h"

namespace regccrf {

class RulePairs {
 public:
  static constexpr std::int32_t kAlike = -1, kOneBroken = -2;
  static constexpr State kMostStates = 24;  // a rule with more states is not compared

  explicit RulePairs(const RuleTables& rules);

  // Pairs of a rule are numbered: those of its own states first, then those with `free`, in the order of the others.
  bool compared(int rule) const { return !rules_[rule].differ.empty(); }
  int count(int rule) const { return static_cast<int>(rules_[rule].differ.size()); }
  int own(int rule) const { return rules_[rule].own; }
  State free(int rule) const { return rules_[rule].free; }
  // The number of a pair, of two different states in either order.
  static int number(State s, State other) {
    const State low = s < other ? s : other, high = s < other ? other : s;
    return high * (high - 1) / 2 + low;
  }
  std::int32_t next(int rule, int pair, Label label) const {
    return rules_[rule].next[static_cast<std::size_t>(label) * rules_[rule].differ.size() + pair];
  }
  // Whether exactly one of the two accepts at the end of a sequence.
  bool differ_at_end(int rule, int pair) const { return rules_[rule].differ[pair] != 0; }

  // The rules of which a label moves some state, in order.
  std::span<const int> moved_by(Label label) const { return moved_by_[label]; }

 private:
  struct Facts {
    int own = 0;
    State free = 0;
    std::vector<std::int32_t> next = {};    // [K, count]
    std::vector<std::uint8_t> differ = {};  // [count]
  };
  static Facts compare(const RuleTables& rules, int rule);

  std::vector<Facts> rules_;
  std::vector<std::vector<int>> moved_by_;  // [K]
};

}  // namespace regccrf
