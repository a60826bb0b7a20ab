// Futures: what a state of a rule means to the rest of a sequence. For every live node of a chain and every pair of a
// rule's states, the probability that the sequence goes on after that node so that exactly one of the two accepts
// (constraint/rule_pairs.h). Found by a walk backward, all pairs side by side.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "constraint/rule_pairs.h"
#include "inference/rules/chain.h"
#include "inference/rules/lanes.h"

namespace regccrf {

class Futures {
 public:
  enum class Pairs { own, with_free };

  // The pairs of a rule's own states, or those of each with `free`; of rules that are compared.
  void find(const Chain& chain, const RulePairs& pairs, std::span<const int> rules, Pairs which);

  // Numbers of a node, padded.
  std::size_t width() const { return width_; }
  // Of live nodes, counted over all positions; own pairs alone are kept.
  const double* after(std::int32_t node) const { return after_.data() + static_cast<std::size_t>(node) * width_; }
  // Where the pair of two states of the i-th rule is among a node's numbers.
  int place(int i, State s, State other) const { return parts_[i].at + RulePairs::number(s, other); }

  // With `free`: P(a sequence breaks the i-th rule).
  double broken(int i, State start) const;

 private:
  void choose(std::span<const int> rules, Pairs which);
  void at_end(double* after) const;
  void step_over(Label label, const double* after, double* before) const;

  const Chain* chain_ = nullptr;
  const RulePairs* pairs_ = nullptr;
  struct Part {  // of a rule: pairs begin … end − 1; pair p is a node's number at + p
    int rule, begin, end, at;
  };
  std::vector<Part> parts_;
  std::vector<int> part_of_;  // [rules of the constraint] or −1
  std::size_t width_ = 0;
  std::vector<double> after_;   // [live, width]; with `free` [live of two positions, width]
  std::vector<double> before_;  // [live of a position, width] as after_, before the node's own label
};

}  // namespace regccrf
