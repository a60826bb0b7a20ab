// RuleTables: the rules of a constraint as inference reads them, a table of moves for each. A sequence is walked
// through all of them with one look-up for each rule and label.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regccrf/constraint.h"

namespace regccrf {

class RuleTables {
 public:
  static constexpr State kBroken = -1;

  RuleTables(std::span<const Rule> rules, int labels);

  int size() const { return static_cast<int>(tables_.size()); }
  int labels() const { return labels_; }
  State states(int rule) const { return static_cast<State>(tables_[rule].accepting.size()); }
  State start(int rule) const { return tables_[rule].start; }
  bool accepts(int rule, State state) const { return tables_[rule].accepting[state] != 0; }
  State next(int rule, State state, Label label) const { return tables_[rule].next[state * labels_ + label]; }

  // The rules that a sequence breaks, in order.
  std::vector<int> broken(std::span<const Label> sequence) const;
  // So many labels at least have to follow where the rules are in these states: a rule needs some labels that bring it
  // nearer to its end, and one label brings only so many rules nearer.
  std::int64_t least_rest(std::span<const State> states) const;
  // The same for a whole sequence: none that obeys all rules is shorter.
  std::int64_t least_length() const;
  // Which labels the rule is about: all but those of the largest set that it treats alike.
  std::vector<Label> subject(int rule) const;

 private:
  struct Table {
    State start;
    std::vector<std::uint8_t> accepting;  // [Q]
    std::vector<State> next;              // [Q, K], kBroken where no continuation obeys the rule
    std::vector<std::int32_t> least;      // [Q] labels to the nearest accepting state
  };
  // Whether the label ever brings the rule nearer to an accepting state.
  bool helps(const Table& table, Label label) const;

  int labels_;
  std::vector<Table> tables_;
  std::int64_t most_helped_ = 1;  // rules that one label brings nearer to an accepting state
};

}  // namespace regccrf
